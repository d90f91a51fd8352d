"""Moves between registers and tensor memory (sm_100): a lane holds a row, a register a 32-bit column of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import LoadTensorMemory, StoreTensorMemory, TmemRef
from heddle.ir.warp import Access
from heddle.passes.draft import Operand
from heddle.passes.layout_to_warps import LANES, REGISTER_BYTES, WarpLayout
from heddle.passes.select.elementwise import part_registers
from heddle.passes.select.sm_100 import tmem_address, tmem_tile
from heddle.passes.select.writer import RoleWriter

LOAD_COLUMNS = 32  # 32-bit columns of one LDTM.x32: 32 registers a lane
STORE_COLUMNS = 16  # of one STTM.x16


def lower_load_tensor_memory(writer: RoleWriter, op: LoadTensorMemory) -> None:
    """LDTM of up to 32 columns each, then a wait for all of them."""
    layout = writer.layout(op.dst)
    if (op.src.rows, op.src.cols) != (layout.tile.rows, layout.tile.cols):
        raise _differs(writer, op.src, op.dst, layout)
    _check(writer, op.src, op.dst, layout)
    address = tmem_address(writer, op.src)
    registers = writer.tile_registers(op.dst)
    for count, part, memory, target in pieces(writer, registers, op.src, op.dst, 0, LOAD_COLUMNS):
        effect = writer.effect("copy", [memory], [target])
        writer.emit("LDTM", part, (address,), bytes=LANES * REGISTER_BYTES * count, effect=effect)
    writer.emit("FENCE.TM", after=registers)


def lower_store_tensor_memory(writer: RoleWriter, op: StoreTensorMemory) -> None:
    """STTM of up to 16 columns each; with `wait`, a wait for all stores of the role so far."""
    layout = writer.layout(op.src)
    if op.dst.rows != layout.tile.rows or op.src_col + op.dst.cols > layout.tile.cols:
        raise _differs(writer, op.dst, op.src, layout)
    _check(writer, op.dst, op.src, layout)
    address = tmem_address(writer, op.dst)
    registers = part_registers(writer, op.src, op.src_col, op.dst.cols)
    for count, part, memory, source in pieces(writer, registers, op.dst, op.src, op.src_col, STORE_COLUMNS):
        # a uniform register stands for the end of the store: the wait reads it
        stored = Operand(writer.value("stored", file="uniform"))
        effect = writer.effect("copy", [source], [memory])
        writer.emit("STTM", stored, (address, part), bytes=LANES * REGISTER_BYTES * count, effect=effect)
        writer.tensor_memory_stores.append(stored)
    if op.wait:
        writer.emit("FENCE.TM", after=writer.tensor_memory_stores)
        writer.tensor_memory_stores = []


def pieces(
    writer: RoleWriter, registers: list[Operand], box: TmemRef, name: str, first_col: int, most: int
) -> Iterator[tuple[int, Operand, Access, Access]]:
    """Cut a band's row of registers into instructions: registers, operand, and the accesses of memory and of tile."""
    layout = writer.layout(name)
    elements = REGISTER_BYTES // dtype_bytes(layout.tile.dtype)
    row = len(registers) // layout.bands
    for band in range(layout.bands):
        place = layout.band(band, writer.tile_object(name))
        for start in range(0, row, most):
            count = min(most, row - start)
            first = registers[band * row + start]
            col, cols = start * elements, count * elements
            tile = replace(place, col=first_col + col, cols=cols)
            memory = replace(
                writer.tmem_access(box),
                row=box.row + place.row,
                rows=place.rows,
                rank_row=place.rank_row,
                col=box.col + col,
                cols=cols,
            )
            yield count, Operand(first.value, first.offset, count), memory, tile


def _check(writer: RoleWriter, box: TmemRef, name: str, layout: WarpLayout) -> None:
    if layout.kind != "lane":
        raise _differs(writer, box, name, layout)
    memory = tmem_tile(writer, box.tile)
    if memory.dtype != layout.tile.dtype:
        raise UserError(
            f"tensor memory tile {memory.name} is {memory.dtype}, {name} {layout.tile.dtype}", where=writer.where
        )
    elements = REGISTER_BYTES // dtype_bytes(memory.dtype)
    if box.col % elements or box.cols % elements:
        raise UserError(
            f"columns {box.col} to {box.col + box.cols} of {memory.name} are no whole 32-bit columns",
            where=writer.where,
        )


def _differs(writer: RoleWriter, box: TmemRef, name: str, layout: WarpLayout) -> UserError:
    return UserError(
        f"tensor memory box {box.rows} x {box.cols} and register tile {name} {layout.tile.rows} x "
        f"{layout.tile.cols} (warp grid {layout.tile.warp_grid}) differ",
        where=writer.where,
        hint="use equal shapes and a warp grid of (warps, 1)",
    )
