"""What loads and stores share: pieces of a box, widths, addresses, effects."""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.tile import GlobalRef, SharedRef
from heddle.ir.warp import Access, StreamRef
from heddle.passes.draft import Operand, Value
from heddle.passes.layout_to_warps import ATOM_COLS, ATOM_LANE_COLS, WarpLayout
from heddle.passes.select.elementwise import sharing_lanes
from heddle.passes.select.writer import RoleWriter

LANES = 32
REGISTER_BYTES = 4
VECTOR_REGISTERS = 4  # widest access of a lane: 16 bytes


def check_part(writer: RoleWriter, name: str, first_col: int, rows: int, cols: int) -> None:
    tile = writer.layout(name).tile
    if rows != tile.rows or first_col + cols > tile.cols:
        raise UserError(
            f"a box of {rows} x {cols} from column {first_col} is not part of register tile {name} "
            f"({tile.rows} x {tile.cols})",
            where=writer.where,
        )


def piece(name: str, ref: GlobalRef, layout: WarpLayout, index: int, count: int) -> StreamRef:
    """The piece of a box that a warp's access `index` of `count` moves; pieces are numbered row by row."""
    warps = 1 if layout.tile.rows == 1 else layout.warps
    part, stride = index * warps, 1
    if layout.kind == "rows":
        of_row = count // layout.bands
        part, stride = index // of_row * warps * of_row + index % of_row, of_row
    return StreamRef(
        name=name,
        offset=ref.ahead,
        part=part,
        parts=count * warps,
        part_by_rank=warps > 1,
        rank_stride=stride,
    )


def access_bytes(layout: WarpLayout, group: Operand) -> int:
    """Bytes that a warp's access moves: a column has one element for the lanes that share a row.

    Of a vector beside fragments the lanes of one row of an atom have all; the others have copies.
    """
    if layout.kind == "columns":
        return ATOM_COLS // ATOM_LANE_COLS * REGISTER_BYTES * group.count
    lanes = LANES if layout.cols > 1 else LANES // sharing_lanes(layout)
    return lanes * REGISTER_BYTES * group.count


def width_of(layout: WarpLayout, element_bytes: int) -> int:
    """Registers of one access of a lane: four of its row, or the two neighbouring columns of a fragment."""
    if layout.cols == 1:
        return 1
    return (
        VECTOR_REGISTERS
        if layout.kind in ("lane", "rows", "vector", "second") or layout.passing
        else max(1, 2 * element_bytes // REGISTER_BYTES)
    )


def vectors(registers: list[Operand], width: int) -> list[Operand]:
    """Neighbouring registers of one value, up to `width` together."""
    groups: list[Operand] = []
    for register in registers:
        last = groups[-1] if groups else None
        joins = last and last.value == register.value and last.offset + last.count == register.offset
        if last and joins and last.count < width:
            groups[-1] = replace(last, count=last.count + 1)
        else:
            groups.append(register)
    return groups


def shared_base(writer: RoleWriter, ref: SharedRef) -> Operand:
    """This lane's address in the current stage of a shared tile."""
    base = writer.kept(f"{ref.tile}.lane_address", file="vector", op="IMAD")
    return writer.scalar("IMAD", base, writer.stage(ref.ring), name="stage_address") if ref.ring else base


def pointer_of(writer: RoleWriter, ref: GlobalRef) -> Value:
    """A 64-bit address of this lane: row and column of the box times the pitch, plus the tensor's base."""
    row = writer.scalar("IMAD", name="row")
    pointer = writer.value("pointer", 2)
    writer.emit("IMAD", Operand(pointer, 0), (row,))
    writer.emit("IMAD", Operand(pointer, 1), (row,))
    return pointer


def advance_pointer(writer: RoleWriter, pointer: Value) -> Value:
    following = writer.value("pointer", 2)
    writer.emit("IADD3", Operand(following, 0), (Operand(pointer, 0),))
    writer.emit("IMAD", Operand(following, 1), (Operand(pointer, 1),))
    return following


def turned_effects(
    writer: RoleWriter, positions: list[int], kind: str, tile: str, first_col: int, memory: Access
) -> None:
    """One effect a band of a transposed store, whose rows are columns of the box."""
    layout = writer.layout(tile)
    if layout.tile.warp_grid[1] > 1:
        raise UserError(
            f"a transposed store takes tiles whose warps lie along rows; {tile} has not", where=writer.where
        )
    for band in range(layout.bands):
        register = replace(writer.tile_band(tile, band), col=first_col, cols=memory.rows)
        box = replace(
            memory,
            col=memory.col + register.row,
            cols=register.rows,
            rank_col=register.rank_row,
            rank_cols=layout.warps,
        )
        position = positions[(band + 1) * len(positions) // layout.bands - 1]
        effect = writer.effect(kind, [register], [box], transposed=1)
        draft = writer.code[position]
        writer.code[position] = replace(draft, row=replace(draft.row, effect=effect))


def band_effects(
    writer: RoleWriter, positions: list[int], kind: str, tile: str, first_col: int, memory: Access, direction: str
) -> None:
    """One effect a band, on the last of the band's memory instructions (whose places in the code are `positions`)."""
    layout = writer.layout(tile)
    for band in range(layout.bands):
        register = writer.tile_band(tile, band)
        cols = register.cols if memory.cols == layout.tile.cols else memory.cols
        register = replace(register, col=register.col + first_col, cols=cols)
        box = replace(
            memory,
            row=memory.row + register.row,
            rows=register.rows,
            cols=cols,
            rank_row=register.rank_row,
            rank_col=register.rank_col,
            rank_cols=register.rank_cols,
        )
        reads, writes = ([box], [register]) if direction == "read" else ([register], [box])
        position = positions[(band + 1) * len(positions) // layout.bands - 1]
        draft = writer.code[position]
        effect = writer.effect(kind, reads, writes)
        writer.code[position] = replace(draft, row=replace(draft.row, effect=effect))
