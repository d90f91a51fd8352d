"""Ampere in mode fiber: weft-level products whose B lies whole in the weft's own subpartition.

Each of four wefts has loaded all of B from shared memory by ldmatrix (`k.load(..., each=True)`), so nothing is read in
another subpartition, and the four need not start together. All columns of a step of 16 are neighbours in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.tile import LoadShared, MmaApart, TileProgram
from heddle.ir.tile_walk import Place, walk, walk_body
from heddle.ir.warp import Access, DataObject
from heddle.passes.draft import Operand
from heddle.passes.layout_to_warps import WarpLayout
from heddle.passes.select import fiber_apart
from heddle.passes.select.fiber_hmma import ATOM, ATOM_REGISTERS, COLS, NOTHING, operand_atom
from heddle.passes.select.fiber_wmma import MAX_COLUMNS
from heddle.passes.select.writer import RoleWriter


def copied(program: TileProgram) -> frozenset[str]:
    """Return the pool tensors of which each subpartition has a copy, loaded from shared memory."""
    return frozenset(op.dst for op, _ in walk(program) if isinstance(op, LoadShared) and op.each)


def summed_columns(program: TileProgram) -> frozenset[str]:
    """Return those of them that products sum over along their columns: atoms of a step lie below each other."""
    products = [op for op, _ in walk(program) if isinstance(op, MmaApart) and not op.b_transposed]
    return copied(program) & {op.b for op in products}


def whole_rows(writer: RoleWriter) -> frozenset[str]:
    """Return the register tiles of a role that such products accumulate in: 16 rows of one are one value."""
    copies = copied(writer.program)
    ops = (op for op, _ in walk_body(writer.role.body, Place(writer.role)))
    return frozenset(op.acc for op in ops if isinstance(op, MmaApart) and op.b in copies)


def lower_mma_apart(writer: RoleWriter, op: MmaApart) -> None:
    """One WMMA a step. A sum that goes to the pool grows in registers of the weft; the last step writes it."""
    if op.b not in copied(writer.program):
        fiber_apart.lower_mma_apart(writer, op)
        return
    acc, pool = writer.layout(op.acc), {tile.name for tile in writer.program.pool}
    depth, columns = _sizes(writer, op)
    if acc.rows != ATOM or depth % ATOM or columns % ATOM or columns > MAX_COLUMNS:
        raise UserError(
            f"a weft-level product of {acc.rows} rows over {depth} with {columns} columns; needs {ATOM} rows a weft, "
            f"multiples of {ATOM}, and up to {MAX_COLUMNS} columns",
            where=writer.where,
        )
    if op.acc in pool and op.accumulate:
        raise UserError(
            f"a product adds to pool tensor {op.acc!r}, which its reader gives back; add to registers of the role",
            where=writer.where,
            hint="pass accumulate=False",
        )
    steps = depth // ATOM
    for step in range(steps):
        _emit(writer, op, acc, step, grows=op.acc in pool and step < steps - 1, last=step == steps - 1)


def _sizes(writer: RoleWriter, op: MmaApart) -> tuple[int, int]:
    """Return what a weft sums over, and its columns."""
    b = writer.layout(op.b)
    return (b.rows, b.cols) if op.b_transposed else (b.cols, b.rows)


def _emit(writer: RoleWriter, op: MmaApart, acc: WarpLayout, step: int, *, grows: bool, last: bool) -> None:
    """One step; `grows`: into the registers where the sum grows on its way to the pool."""
    _, columns = _sizes(writer, op)
    pool = op.acc in {tile.name for tile in writer.program.pool}
    fresh = step == 0 and not op.accumulate
    added: tuple[Operand, ...] = (NOTHING,) if fresh else ()
    if pool and last and not fresh:
        added = (_sum(writer, op, acc, grows=True),)
    count = columns // ATOM * ATOM_REGISTERS
    writer.emit(
        "WMMA",
        _sum(writer, op, acc, grows=grows),
        (
            operand_atom(writer, op.a, *((step, 0) if op.a_transposed else (0, step))),
            Operand(writer.tile_values(op.b)[0], step * count, count),
            *added,
        ),
        accumulates=not added,
        shape=(ATOM, columns, ATOM),
        form="rr",
        dtype=writer.layout(op.b).tile.dtype,
        effect=_effect(writer, op, step, fresh=fresh, grows=grows, adds=bool(added) and not fresh),
    )


def _sum(writer: RoleWriter, op: MmaApart, acc: WarpLayout, *, grows: bool) -> Operand:
    count = acc.cols // COLS * ATOM_REGISTERS
    if not grows:
        return Operand(writer.tile_values(op.acc)[0], 0, count)
    key = (op.acc, "chain", 0)
    if key not in writer.fragments:
        writer.fragments[key] = writer.value("chain0", count)
    return Operand(writer.fragments[key], 0, count)


def _effect(writer: RoleWriter, op: MmaApart, step: int, *, fresh: bool, grows: bool, adds: bool) -> int:
    total = writer.tile_band(op.acc, 0)
    grown = replace(total, object=_chain(writer, op))
    reads = [*_operands(writer, op, step), *([grown] if adds else [])]
    params = {"accumulate": 0 if fresh else 1} | ({"transposed": 1} if op.b_transposed else {})
    params |= {"a_transposed": 1} if op.a_transposed else {}
    return writer.effect("mma", reads, [grown if grows else total], **params)


def _operands(writer: RoleWriter, op: MmaApart, step: int) -> Iterator[Access]:
    first = writer.tile_band(op.a, 0)
    if op.a_transposed:
        yield replace(first, row=step * ATOM, rows=ATOM, cols=ATOM)
    else:
        yield replace(first, col=step * ATOM, cols=ATOM)
    held = writer.tile_band(op.b, 0)
    if op.b_transposed:
        yield replace(held, row=held.row + step * ATOM, rows=ATOM)
    else:
        yield replace(held, col=step * ATOM, cols=ATOM)


def _chain(writer: RoleWriter, op: MmaApart) -> str:
    """The object in which a sum grows on its way to the pool."""
    tile = writer.layout(op.acc).tile
    name, shape = f"{writer.role.name}.{tile.name}.chain", (tile.rows, tile.cols)
    return writer.tables.add_object(DataObject(name=name, space="register", shape=shape, dtype=tile.dtype, scope="cta"))
