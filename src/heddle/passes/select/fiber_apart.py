"""Ampere in mode fiber: wefts that multiply what they hold themselves, loaded from global memory as operands.

What is summed over may come in any order, if both operands have the same. So a lane loads 16 bytes of a row of B at a
time and has the registers of mma.sync without a pass through shared memory:

- b [n, k], as keys: a load brings 8 rows of 32 columns, four lanes a row: the operands of two steps of 16.
- b [k, n], as values: a load brings 4 rows of 64 columns; four loads have 16 rows, of which a lane has four. mma.sync
  takes pairs of rows in one register: `pair_rows` makes them by byte permutes, one a register. The first eight columns
  of its product are then every eighth of the 64, and so on; and rows 2c, 2c + 1, 2c + 8, 2c + 9, which mma.sync gives
  to lane c, are rows c, c + 4, c + 8, c + 12 here: keys are loaded in that order too.
"""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import Elementwise, LoadGlobal, MmaApart
from heddle.ir.tile_walk import walk
from heddle.ir.warp import Access
from heddle.passes.draft import Operand
from heddle.passes.layout_to_warps import LANES, REGISTER_BYTES, WarpLayout
from heddle.passes.select import accesses, elementwise, loads
from heddle.passes.select.elementwise import add_effects
from heddle.passes.select.fiber_hmma import ATOM, ATOM_REGISTERS, COLS, ELEMENT_BYTES, GROUP_WEFTS, NOTHING
from heddle.passes.select.writer import RoleWriter

LOAD_REGISTERS = 4
"""Of a load: 16 bytes a lane."""
LOAD_BYTES = 512
KEY_ROWS, KEY_COLS = 8, 32
"""What one load brings of [n, k]."""
VALUE_ROWS, VALUE_COLS = 4, 64
"""What one load brings of [k, n]."""
POINTER_LOADS = 8
"""That one address serves, by offsets in the instruction."""


def lower_load_global(writer: RoleWriter, op: LoadGlobal) -> None:
    """Loads of 16 bytes a lane into operands; other tiles as in other modes."""
    box = _loaded_box(writer, op.dst)
    if writer.layout(op.dst).tile.spread == "first":
        _load_first(writer, op)
        return
    if box is None:
        loads.lower_load_global(writer, op)
        return
    layout, (height, width) = writer.layout(op.dst), box
    if layout.rows % ATOM or layout.cols % VALUE_COLS:
        raise UserError(
            f"{op.dst!r} gives {layout.rows} rows of {layout.cols} columns to a weft; operands are loaded in multiples "
            f"of {ATOM} rows and {VALUE_COLS} columns",
            where=writer.where,
        )
    stream = writer.tables.stream(op.src, "load", writer.level(op.src.loop), writer.where)
    memory, place = writer.global_access(op.src), writer.tile_band(op.dst, 0)
    count = layout.band_registers // LOAD_REGISTERS
    pointer = accesses.pointer_of(writer, op.src)
    for index, (row, col) in enumerate(_boxes(layout, height, width)):
        if index and index % POINTER_LOADS == 0:
            pointer = accesses.advance_pointer(writer, pointer)
        writer.emit(
            "LDG",
            Operand(writer.tile_values(op.dst)[0], index * LOAD_REGISTERS, LOAD_REGISTERS),
            (Operand(pointer, 0, 2),),
            stream=accesses.piece(stream.name, op.src, layout, index, count),
            bytes=LOAD_BYTES,
        )
        part = replace(place, row=place.row + row, col=place.col + col, rows=height, cols=width)
        loads.load_effect(writer, len(writer.code) - 1, memory, part)


def _load_first(writer: RoleWriter, op: LoadGlobal) -> None:
    """A first operand register by register, pairs of columns; a step of 16 columns is there with its last load."""
    layout = writer.layout(op.dst)
    stream = writer.tables.stream(op.src, "load", writer.level(op.src.loop), writer.where)
    memory, place = writer.global_access(op.src), writer.tile_band(op.dst, 0)
    registers = writer.tile_registers(op.dst)
    pointer = accesses.pointer_of(writer, op.src)
    for index, register in enumerate(registers):
        if index and index % POINTER_LOADS == 0:
            pointer = accesses.advance_pointer(writer, pointer)
        writer.emit(
            "LDG",
            register,
            (Operand(pointer, 0, 2),),
            stream=accesses.piece(stream.name, op.src, layout, index, len(registers)),
            bytes=LANES * REGISTER_BYTES,
        )
        if index % ATOM_REGISTERS == ATOM_REGISTERS - 1:
            part = replace(place, col=place.col + index // ATOM_REGISTERS * ATOM, cols=ATOM, rank_row=0)
            loads.load_effect(writer, len(writer.code) - 1, memory, part)


def _loaded_box(writer: RoleWriter, name: str) -> tuple[int, int] | None:
    """Rows and columns of one load of a pool tensor that wefts multiply by, or make pairs of; None for others."""
    if name not in {tile.name for tile in writer.program.pool}:
        return None
    for op, _ in walk(writer.program):
        if isinstance(op, MmaApart) and op.b == name:
            return KEY_ROWS, KEY_COLS
        if isinstance(op, Elementwise) and op.function == "pair_rows" and op.sources == (name,):
            return VALUE_ROWS, VALUE_COLS
    return None


def _boxes(layout: WarpLayout, height: int, width: int) -> list[tuple[int, int]]:
    """Corners of the loads in the order of registers: rows fastest within 16 rows of values, columns within keys."""
    if height == KEY_ROWS:
        return [(row, col) for row in range(0, layout.rows, height) for col in range(0, layout.cols, width)]
    return [
        (step + row, col)
        for step in range(0, layout.rows, ATOM)
        for col in range(0, layout.cols, width)
        for row in range(0, ATOM, height)
    ]


def lower_elementwise(writer: RoleWriter, op: Elementwise) -> None:
    """`pair_rows` is of this module."""
    if op.function != "pair_rows":
        elementwise.lower_elementwise(writer, op)
        return
    source, target = writer.layout(op.sources[0]), writer.layout(op.dst)
    first = op.source_cols[0] if op.source_cols else 0
    if target.cols != VALUE_COLS or first % VALUE_COLS or target.rows != source.rows or op.dst_cols:
        raise UserError(
            f"pair_rows takes {VALUE_COLS} columns of a pool tensor into a tile of as many, not {target.cols}",
            where=writer.where,
        )
    start, raw = len(writer.code), writer.tile_values(op.sources[0])[0]
    blocks, registers = source.cols // VALUE_COLS, writer.tile_registers(op.dst)
    for step in range(target.rows // ATOM):
        base = (step * blocks + first // VALUE_COLS) * ATOM
        for col in range(VALUE_COLS // COLS):
            for half in range(2):
                pair = [Operand(raw, base + (2 * half + i) * LOAD_REGISTERS + col // 2) for i in range(2)]
                writer.emit("PRMT", registers[(step * (VALUE_COLS // COLS) + col) * 2 + half], pair)
    part = (0, target.cols)
    add_effects(writer, start, "elementwise", [op.sources[0]], op.dst, (first,), part, function="copy")


def lower_mma_apart(writer: RoleWriter, op: MmaApart) -> None:
    """HMMAs, steps outermost, so that neighbours add to different sums."""
    acc, b = writer.layout(op.acc), writer.layout(op.b)
    if writer.role.warps != GROUP_WEFTS or dtype_bytes(b.tile.dtype) != ELEMENT_BYTES:
        raise UserError(f"four wefts multiply apart, 16-bit elements; role {writer.role.name} does not", where=op.where)
    depth, columns = (b.rows, b.cols) if op.b_transposed else (b.cols, b.rows)
    for step in range(depth // ATOM):
        for col in range(columns // COLS):
            total = writer.tile_registers(op.acc)[col * ATOM_REGISTERS]
            writer.emit(
                "HMMA",
                replace(total, count=ATOM_REGISTERS),
                (_first(writer, op, step), _second(writer, op, b, step, col), *(() if _adds(op, step) else (NOTHING,))),
                accumulates=_adds(op, step),
                shape=(ATOM, COLS, ATOM),
                form="rr",
                dtype=b.tile.dtype,
                effect=_effect(writer, op, acc, step, col),
            )


def _adds(op: MmaApart, step: int) -> bool:
    return op.accumulate or step > 0


def _first(writer: RoleWriter, op: MmaApart, step: int) -> Operand:
    return replace(writer.tile_registers(op.a)[step * ATOM_REGISTERS], count=ATOM_REGISTERS)


def _second(writer: RoleWriter, op: MmaApart, b: WarpLayout, step: int, col: int) -> Operand:
    """The two registers of a step of 16 and eight columns of the product."""
    if op.b_transposed:
        index = (step * (b.cols // COLS) + col) * 2
    else:
        index = (col * (b.cols // KEY_COLS) + step // 2) * LOAD_REGISTERS + step % 2 * 2
    return replace(writer.tile_registers(op.b)[index], count=2)


def _effect(writer: RoleWriter, op: MmaApart, acc: WarpLayout, step: int, col: int) -> int:
    a = replace(writer.tile_band(op.a, 0), col=step * ATOM, cols=ATOM)
    held = writer.tile_band(op.b, 0)
    if op.b_transposed:
        b: Access = replace(held, row=held.row + step * ATOM, rows=ATOM, col=col * COLS, cols=COLS)
    else:
        b = replace(held, row=held.row + col * COLS, rows=COLS, col=step * ATOM, cols=ATOM)
    total = replace(writer.tile_band(op.acc, 0), col=col * COLS, cols=COLS)
    params = {"accumulate": int(_adds(op, step))} | ({"transposed": 1} if op.b_transposed else {})
    return writer.effect("mma", [a, b], [total], **params)
