"""Loads of register tiles from shared and global memory by the load/store unit."""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import LoadGlobal, LoadShared
from heddle.ir.warp import Access
from heddle.passes.draft import Operand
from heddle.passes.layout_to_warps import ATOM_COLS, ATOM_LANE_COLS
from heddle.passes.select.accesses import (
    LANES,
    REGISTER_BYTES,
    access_bytes,
    band_effects,
    piece,
    pointer_of,
    shared_base,
    vectors,
    width_of,
)
from heddle.passes.select.writer import RoleWriter


def lower_load_shared(writer: RoleWriter, op: LoadShared) -> None:
    """LDS of up to 16 bytes a lane."""
    tile, layout = writer.shared_tile(op.src.tile), writer.layout(op.dst)
    if tile.dtype != layout.tile.dtype:
        raise UserError(
            f"shared tile {tile.name} is {tile.dtype}, register tile {op.dst} is {layout.tile.dtype}",
            where=writer.where,
        )
    base = shared_base(writer, op.src)
    loads: list[int] = []
    for group in vectors(writer.tile_registers(op.dst), width_of(layout, dtype_bytes(tile.dtype))):
        lanes = 1 if layout.kind == "vector" else LANES  # all lanes read the same words: one broadcast
        writer.emit("LDS", group, (base,), bytes=lanes * REGISTER_BYTES * group.count)
        loads.append(len(writer.code) - 1)
    band_effects(writer, loads, "copy", op.dst, 0, writer.shared_access(op.src), "read")


def lower_load_global(writer: RoleWriter, op: LoadGlobal) -> None:
    """LDG of register pairs (fragments hold two neighbours) or four registers (a row a lane, whole rows a warp)."""
    layout = writer.layout(op.dst)
    if layout.kind == "vector":
        raise UserError(
            f"{op.dst} is a vector of which each lane has all columns; it is loaded from shared memory",
            where=writer.where,
        )
    stream = writer.tables.stream(op.src, "load", writer.level(op.src.loop), writer.where)
    pointer = pointer_of(writer, op.src)
    groups = vectors(writer.tile_registers(op.dst), width_of(layout, dtype_bytes(layout.tile.dtype)))
    loads: list[int] = []
    for index, group in enumerate(groups):
        writer.emit(
            "LDG",
            group,
            (Operand(pointer, 0, 2),),
            stream=piece(stream.name, op.src, layout, index, len(groups)),
            bytes=access_bytes(layout, group),
        )
        loads.append(len(writer.code) - 1)
    memory = writer.global_access(op.src)
    sizes = [group.count for group in groups]
    if layout.kind == "lane":  # what uses columns of a row waits only for the loads of these columns
        _lane_effects(writer, loads, sizes, op.dst, memory)
    elif layout.kind == "rows" and layout.cols > 1:
        _block_effects(writer, loads, sizes, op.dst, memory)
    elif layout.kind == "columns":
        _vector_effects(writer, loads, sizes, op.dst, memory)
    else:
        band_effects(writer, loads, "copy_async", op.dst, 0, memory, "read")


def _lane_effects(writer: RoleWriter, positions: list[int], sizes: list[int], tile: str, memory: Access) -> None:
    """One effect a load of a row a lane: load i brings `sizes[i]` registers, band after band."""
    layout = writer.layout(tile)
    elements = REGISTER_BYTES // dtype_bytes(layout.tile.dtype)
    register = 0
    for position, size in zip(positions, sizes, strict=True):
        band, first = divmod(register, layout.band_registers)
        place = layout.band(band, writer.tile_object(tile))
        col, cols = first * elements, size * elements
        load_effect(writer, position, memory, replace(place, col=col, cols=cols))
        register += size


def load_effect(writer: RoleWriter, position: int, memory: Access, part: Access) -> None:
    """A load at `position` of the code brings a part of a register tile from the same part of a box."""
    box = replace(
        memory,
        row=memory.row + part.row,
        rows=part.rows,
        rank_row=part.rank_row,
        col=memory.col + part.col,
        cols=part.cols,
    )
    effect = writer.effect("copy_async", [box], [part])
    draft = writer.code[position]
    writer.code[position] = replace(draft, row=replace(draft.row, effect=effect))


def _block_effects(writer: RoleWriter, positions: list[int], sizes: list[int], tile: str, memory: Access) -> None:
    """One effect for every block of columns, on the last of its loads (load i brings `sizes[i]` registers)."""
    layout = writer.layout(tile)
    block_cols = min(layout.block_cols, layout.cols)  # a column is a block by itself
    block = layout.band_registers * block_cols // layout.cols
    loaded = 0
    for position, size in zip(positions, sizes, strict=True):
        loaded += size
        if loaded % block:
            continue
        band, last = divmod(loaded - block, layout.band_registers)
        place = layout.band(band, writer.tile_object(tile))
        col = last // block * block_cols
        load_effect(writer, position, memory, replace(place, col=col, cols=block_cols))


def _vector_effects(writer: RoleWriter, positions: list[int], sizes: list[int], tile: str, memory: Access) -> None:
    """One effect a load of a vector beside fragments: a lane has two of the eight columns of an atom."""
    place, col = writer.tile_band(tile, 0), 0
    for position, size in zip(positions, sizes, strict=True):
        cols = size // ATOM_LANE_COLS * ATOM_COLS
        load_effect(writer, position, memory, replace(place, col=col, cols=cols))
        col += cols
