"""Ampere in mode fiber: weft-level products whose B lies, step by step, in one subpartition's vector registers.

Where a tensor that all subpartitions read is divided among them along what a product sums over, all columns of one step
of 16 are neighbours in the registers of one subpartition. Then one instruction of each of four wefts in lockstep takes
them all: A is read once for all columns, and B once for the four. Where it is divided along the columns of the product,
mma.sync multiplies (`fiber_hmma`), 8 columns at a time, each with reads of its own.

Where both operands of a weft lie in its own subpartition (spread "operand"), it needs no others: its instruction stands
alone, and takes the columns that the weft has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.tile import Mma, PoolRef, TileProgram
from heddle.ir.tile_walk import Place, home_subpartitions, walk_body
from heddle.ir.warp import Access
from heddle.passes.draft import Operand
from heddle.passes.layout_to_warps import WarpLayout
from heddle.passes.select import fiber_hmma
from heddle.passes.select.fiber_hmma import (
    ATOM,
    ATOM_REGISTERS,
    COLS,
    GROUP_WEFTS,
    NOTHING,
    along_columns,
    operand_atom,
)
from heddle.passes.select.writer import RoleWriter

MAX_COLUMNS = 256
HOMES = (GROUP_WEFTS, GROUP_WEFTS // 2)
"""Subpartitions among which the B of a weft-level product may be divided."""


def is_weft_level(program: TileProgram, op: Mma) -> bool:
    """Tell whether a product is one instruction a step: its B is divided along what is summed over."""
    if not isinstance(op.b, PoolRef):
        return False
    tile = next(tile for tile in program.pool if tile.name == op.b.tile)
    if tile.spread == "operand":
        return not op.b_transposed
    return math.prod(tile.warp_grid) in HOMES and op.b_transposed != along_columns(tile)


def whole_rows(writer: RoleWriter) -> frozenset[str]:
    """Return the register tiles of a role that weft-level products accumulate in: 16 rows of one are one value."""
    products = (op for op, _ in walk_body(writer.role.body, Place(writer.role)) if isinstance(op, Mma))
    names = (name for op in products if is_weft_level(writer.program, op) for name in (op.acc, op.plus))
    return frozenset(name for name in names if isinstance(name, str))


def lower_mma(writer: RoleWriter, op: Mma) -> None:
    """One WMMA a step and 16 rows, or mma.syncs. A sum that goes to the pool grows in registers of the weft."""
    if not is_weft_level(writer.program, op):
        fiber_hmma.lower_mma(writer, op)
        return
    acc, b = fiber_hmma.check(writer, op)
    if writer.role.warps != GROUP_WEFTS or writer.first_warp % GROUP_WEFTS or op.columns > MAX_COLUMNS:
        raise UserError(
            f"a weft-level product of {op.columns} columns by {writer.role.warps} wefts from {writer.first_warp} on; "
            f"needs up to {MAX_COLUMNS} columns and {GROUP_WEFTS} wefts from a multiple of {GROUP_WEFTS} on",
            where=writer.where,
        )
    _check_own(writer, op, acc, b)
    for step in range(op.depth // ATOM):
        for row in range(acc.rows // ATOM):
            _emit(writer, op, acc, b, step, row)


def _check_own(writer: RoleWriter, op: Mma, acc: WarpLayout, b: WarpLayout) -> None:
    """A weft that multiplies by itself has the rows and columns of its part of the product."""
    assert isinstance(op.a, str)
    if b.tile.spread != "operand":
        return
    a = writer.layout(op.a)
    if (a.rows, b.rows) != (acc.rows, acc.cols) or a.tile.read_by != "own" or op.a_transposed:
        raise UserError(
            f"a weft has {acc.rows} x {acc.cols} of {op.acc}, {a.rows} rows of {op.a} and {b.rows} of {b.tile.name}",
            where=writer.where,
            hint="operands that lie in the weft's own subpartition have its rows, and its columns",
        )


def _emit(writer: RoleWriter, op: Mma, acc: WarpLayout, b: WarpLayout, step: int, row: int) -> None:
    assert isinstance(op.acc, str)
    assert isinstance(op.a, str)
    chained = op.plus is not None or op.acc in {tile.name for tile in writer.program.pool}
    last, fresh = step == op.depth // ATOM - 1, step == 0 and op.accumulate is False
    target = _sum(writer, op, acc, row, chained and not last)
    added: tuple[Operand, ...] = (NOTHING,) if fresh else ()
    if last and chained and not fresh:
        added = (_sum(writer, op, acc, row, True),)
    writer.emit(
        "WMMA",
        target,
        (_first(writer, op, row, step), _second(writer, op, b, step), *added),
        accumulates=not added,
        shape=(ATOM, acc.cols, ATOM),
        form="rr",
        dtype=b.tile.dtype,
        group=b.tile.spread != "operand",
        effect=_effect(writer, op, b, step, row, chained),
    )


def _first(writer: RoleWriter, op: Mma, row: int, step: int) -> Operand:
    """The atom of A; ldmatrix has turned a tensor that takes part transposed, atom by atom."""
    assert isinstance(op.a, str)
    return operand_atom(writer, op.a, *((step, row) if op.a_transposed else (row, step)))


def _sum(writer: RoleWriter, op: Mma, acc: WarpLayout, row: int, chain: bool) -> Operand:
    """The accumulators of 16 rows: of the destination, or of the chain."""
    count = acc.cols // COLS * ATOM_REGISTERS
    name = op.plus if chain else op.acc
    if name is None:
        key = (op.acc, "chain", row)
        if key not in writer.fragments:
            writer.fragments[key] = writer.value(f"chain{row}", count)
        return Operand(writer.fragments[key], 0, count)
    assert isinstance(name, str)
    values = writer.tile_values(name)
    return Operand(values[0], row * count, count) if len(values) == 1 else Operand(values[row], 0, count)


def _second(writer: RoleWriter, op: Mma, b: WarpLayout, step: int) -> Operand:
    """All columns of a step, in the subpartition where they were loaded."""
    if b.tile.spread == "operand":
        count = b.rows // ATOM * ATOM_REGISTERS
        return Operand(writer.tile_values(b.tile.name)[0], step * count, count)
    atoms = (b.rows, b.cols)[not op.b_transposed] // ATOM  # steps of a weft
    part, index = divmod(step, atoms)
    place = home_subpartitions(writer.program, b.tile.name)[part]
    count = op.columns // ATOM * ATOM_REGISTERS
    return Operand(writer.tile_values(b.tile.name)[0], index * count, count, place=place)


def _effect(writer: RoleWriter, op: Mma, b: WarpLayout, step: int, row: int, chained: bool) -> int:
    assert isinstance(op.acc, str)
    assert isinstance(op.a, str)
    last, fresh = step == op.depth // ATOM - 1, step == 0 and op.accumulate is False
    total = fiber_hmma.rows_of(writer, op.acc, row)
    grown = replace(total, object=fiber_hmma.chain_object(writer, op)) if chained else total
    reads = [*_operands(writer, op, b, step, row), *([grown] if last and chained and not fresh else [])]
    params = {"accumulate": 0 if fresh else 1} | ({"transposed": 1} if op.b_transposed else {})
    params |= {"a_transposed": 1} if op.a_transposed else {}
    return writer.effect("mma", reads, [total if last else grown], **params)


def _operands(writer: RoleWriter, op: Mma, b: WarpLayout, step: int, row: int) -> Iterator[Access]:
    assert isinstance(op.a, str)
    if op.a_transposed:
        band = writer.tile_band(op.a, 0)
        yield replace(band, row=step * ATOM, rows=ATOM, col=band.col + row * ATOM, cols=ATOM)
    else:
        yield replace(fiber_hmma.rows_of(writer, op.a, row), col=step * ATOM, cols=ATOM)
    if b.tile.spread == "operand":
        yield replace(writer.tile_band(b.tile.name, 0), col=step * ATOM, cols=ATOM)
        return
    name = writer.tile_object(b.tile.name)
    if op.b_transposed:
        yield Access(object=name, row=step * ATOM, col=0, rows=ATOM, cols=op.columns)
    else:
        yield Access(object=name, row=0, col=step * ATOM, rows=op.columns, cols=ATOM)
