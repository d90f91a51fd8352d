"""Checks a tile program before it is lowered. Every error is a UserError that names the line of the kernel.

One rule a function, in files by subject: names and scopes here, shapes in `tile_verify_shapes`, barriers and rings in
`tile_verify_sync`, roles and what an architecture has in `tile_verify_roles`,
tiles spread by rows in `tile_verify_spread`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from heddle.errors import SourceLocation, UserError, unknown_name
from heddle.ir import tile
from heddle.ir.tile_verify_fiber import verify_fiber
from heddle.ir.tile_verify_paths import verify_paths
from heddle.ir.tile_verify_roles import verify_architecture, verify_register_flow, verify_roles
from heddle.ir.tile_verify_shapes import verify_shapes
from heddle.ir.tile_verify_spread import verify_spread
from heddle.ir.tile_verify_sync import verify_arrivals, verify_bytes, verify_named_barriers, verify_rings
from heddle.ir.tile_walk import Place, references, register_reads, register_writes, walk
from heddle.ir.warp import Count


def verify(program: tile.TileProgram) -> None:
    """Raise UserError on the first rule that the program breaks."""
    for check in (
        verify_unique_names,
        verify_names,
        verify_counts,
        verify_architecture,
        verify_roles,
        verify_fiber,
        verify_paths,
        verify_shapes,
        verify_spread,
        verify_register_flow,
        verify_rings,
        verify_arrivals,
        verify_bytes,
        verify_named_barriers,
    ):
        check(program)


def verify_unique_names(program: tile.TileProgram) -> None:
    """Names of tensors, tiles, barriers and rings are unique, and so are those of roles."""
    records = (
        program.tensors,
        program.shared,
        program.registers,
        program.pool,
        program.tensor_memory,
        program.barriers,
        program.rings,
    )
    _unique((record.name for group in records for record in group), "name")
    _unique((role.name for role in program.roles), "role")


def _unique(names: Iterable[str], kind: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UserError(f"{kind} {name!r} is declared twice")
        seen.add(name)


def verify_names(program: tile.TileProgram) -> None:
    """Every tile, tensor, barrier, ring, loop and item attribute that is used exists, loops and attributes in scope."""
    tensors = {tensor.name for tensor in program.tensors}
    shared = {shared.name for shared in program.shared}
    tensor_memory = {memory.name for memory in program.tensor_memory}
    registers = {register.name for register in (*program.registers, *program.pool)}
    barriers = {barrier.name for barrier in program.barriers}
    rings = {ring.name for ring in program.rings}
    for op, place in walk(program):
        for register in (*register_reads(op), *register_writes(op)):
            _known("register tile", register, registers, op.where)
        for box in references(op, tile.GlobalRef):
            _known("tensor", box.tensor, tensors, op.where)
            _scoped(program, box.row, box.col, place=place, where=op.where)
            _known("loop around this line", box.loop, place.loops, op.where)
        for part in references(op, tile.SharedRef):
            _known("shared tile", part.tile, shared, op.where)
        for part in references(op, tile.TmemRef):
            _known("tensor-memory tile", part.tile, tensor_memory, op.where)
        for use in references(op, tile.BarrierUse):
            _known("barrier", use.name, barriers, op.where)
        for ring in _rings_of(op):
            _known("ring", ring, rings, op.where)
        _scoped(program, *_attributes_of(op), place=place, where=op.where)
        if isinstance(op, tile.SetBusyBit) and isinstance(op.tile, str):
            _known("pool tensor", op.tile, (pool.name for pool in program.pool), op.where)
        if isinstance(op, tile.Mma):
            _known("loop around this line", op.loop, place.loops, op.where)


def _known(kind: str, name: str | None, known: Iterable[str], where: SourceLocation | None) -> None:
    if name is not None and name not in known:
        raise unknown_name(kind, name, known, where)


def _scoped(program: tile.TileProgram, *attributes: str | None, place: Place, where: SourceLocation | None) -> None:
    """An item attribute exists and is used inside the loop over items."""
    for attribute in attributes:
        _known("work item attribute", attribute, program.work.attributes, where)
        if attribute is not None and not place.in_item:
            raise UserError(f"work item attribute {attribute!r} is used outside the loop over work items", where=where)


def _rings_of(op: tile.Op) -> tuple[str, ...]:
    used = [*references(op, tile.SharedRef), *references(op, tile.TmemRef), *references(op, tile.BarrierUse)]
    advanced = op.rings if isinstance(op, tile.Advance) else ()
    return (*advanced, *(use.ring for use in used if use.ring is not None))


def _attributes_of(op: tile.Op) -> tuple[str | None, ...]:
    """Return the item attributes that an operation itself names."""
    if isinstance(op, tile.For | tile.Fibers):
        return (op.count.attribute,)
    if isinstance(op, tile.When):
        return (op.attribute,)
    return (op.semaphore,) if isinstance(op, tile.Signal | tile.Await) else ()


def verify_counts(program: tile.TileProgram) -> None:
    """A loop runs at least once for every work item that reaches it."""
    for op, place in walk(program):
        if isinstance(op, tile.For):
            least = _least_count(program, op.count, place)
            if least < 1:
                raise UserError(
                    f"loop {op.name!r} runs {least} times for a work item; a loop runs at least once",
                    where=op.where,
                    hint="put it under `with k.when(item.flag):`",
                )


def _least_count(program: tile.TileProgram, count: Count, place: Place) -> int:
    if count.attribute is None:
        return count.value + count.offset
    columns = {name: program.work.items[:, i] for i, name in enumerate(program.work.attributes)}
    reached = np.ones(len(program.work.items), dtype=bool)
    for flag in place.flags:
        reached &= columns[flag] != 0
    counts = columns[count.attribute][reached]
    return int(counts.min()) + count.offset if len(counts) else 1
