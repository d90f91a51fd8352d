"""Walks over the operations of a tile program, and what each one refers to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heddle.ir import tile
from heddle.ir.warp_fiber import SUBPARTITIONS


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operation stands: its role, loops and conditions around it, whether in the loop over items.

    `parted`: only some fibers of the role execute it.
    """

    role: tile.RoleBody
    loops: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    in_item: bool = False
    parted: bool = False


def body_of(op: tile.Op) -> tuple[tile.Op, ...]:
    """Return the operations inside a loop, condition or path; none for other operations."""
    bodies = tile.For | tile.ForEachItem | tile.When | tile.Fibers | tile.OtherFibers
    return op.body if isinstance(op, bodies) else ()


def inside(op: tile.Op, place: Place) -> Place:
    """Return the place of the operations inside `op`."""
    if isinstance(op, tile.For):
        return dataclasses.replace(place, loops=(*place.loops, op.name))
    if isinstance(op, tile.When):
        return dataclasses.replace(place, flags=(*place.flags, op.attribute))
    if isinstance(op, tile.Fibers | tile.OtherFibers):
        return dataclasses.replace(place, parted=True)
    return dataclasses.replace(place, in_item=True)


def walk(program: tile.TileProgram) -> Iterator[tuple[tile.Op, Place]]:
    """Yield every operation in program order, role by role, outer ones first."""
    for role in program.roles:
        yield from walk_body(role.body, Place(role))


def walk_body(body: tuple[tile.Op, ...], place: Place) -> Iterator[tuple[tile.Op, Place]]:
    """Yield every operation of a body in program order, outer ones first."""
    for op in body:
        yield op, place
        if body_of(op):
            yield from walk_body(body_of(op), inside(op, place))


def references(op: tile.Op, kind: type[Any]) -> Iterator[Any]:
    """Yield the operands of `op` that are references of a kind."""
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if isinstance(value, kind):
            yield value


READ_FIELDS: dict[type[tile.Op], tuple[str, ...]] = {
    tile.Dequantize: ("src", "scale", "zero"),
    tile.LookUp: ("src", "scale"),
    tile.LookUpRows: ("src",),
    tile.Dot: ("dst", "a", "b"),
}
"""Where operations on weights and their products name the register tiles that they read."""


def register_reads(op: tile.Op) -> tuple[str, ...]:
    """Return the register tiles that an operation reads."""
    if isinstance(op, tile.StoreGlobal | tile.StoreShared | tile.StoreTensorMemory | tile.Gate):
        return (op.src,)
    if isinstance(op, tile.Mask):
        return (op.dst,)
    if isinstance(op, tile.TakeToken):
        return (op.tile,)
    if isinstance(op, tile.RowReduce):
        return (op.src, op.dst) if op.accumulate else (op.src,)
    if isinstance(op, tile.Elementwise):
        return op.sources
    if type(op) in READ_FIELDS:
        return tuple(getattr(op, name) for name in READ_FIELDS[type(op)])
    if isinstance(op, tile.MmaApart):
        return (op.a, op.b, op.acc) if op.accumulate else (op.a, op.b)
    if isinstance(op, tile.Mma):
        reads = [name for name in (op.a, op.plus if op.accumulate else None) if isinstance(name, str)]
        reads += [op.b.tile] if isinstance(op.b, tile.PoolRef | tile.OwnRef) else []
        adds = isinstance(op.acc, str) and op.accumulate is True and op.plus is None
        return (*reads, str(op.acc)) if adds else tuple(reads)
    return ()


def register_writes(op: tile.Op) -> tuple[str, ...]:
    """Return the register tiles that an operation writes."""
    if isinstance(op, tile.MmaApart):
        return (op.acc,)
    if isinstance(op, tile.Mma):
        return tuple(name for name in (op.acc, op.plus) if isinstance(name, str))
    if isinstance(op, tile.LookUp):
        return (op.dst,) if op.upper is None else (op.dst, op.upper)
    loads = tile.LoadGlobal | tile.LoadShared | tile.LoadTensorMemory
    writers = loads | tile.Fill | tile.Elementwise | tile.RowReduce | tile.Mask | tile.Gate | tile.Dequantize
    return (op.dst,) if isinstance(op, writers | tile.LookUpRows | tile.Dot) else ()


def uses_bits(program: tile.TileProgram) -> bool:
    """Return whether full and empty bits order a program's wefts; else barriers do (mode fiber)."""
    return any(isinstance(op, tile.SetBusyBit | tile.TakeToken) for op, _ in walk(program))


def first_weft(program: tile.TileProgram, role: tile.RoleBody) -> int:
    """Return the number of a role's first weft (or warp)."""
    return sum(other.warps for other in program.roles[: program.roles.index(role)])


def reading_subpartitions(program: tile.TileProgram, name: str) -> tuple[int, ...]:
    """Return the subpartitions of the wefts that read a pool tensor, ascending, one entry a weft."""
    roles = {place.role.name for op, place in walk(program) if name in register_reads(op)}
    wefts = [
        first_weft(program, role) + rank for role in program.roles if role.name in roles for rank in range(role.warps)
    ]
    return tuple(sorted(weft % SUBPARTITIONS for weft in wefts))


def role_subpartitions(program: tile.TileProgram, role: tile.RoleBody) -> tuple[int, ...]:
    """Return the subpartition of each weft of a role."""
    first = first_weft(program, role)
    return tuple(weft % SUBPARTITIONS for weft in range(first, first + role.warps))


def home_subpartitions(program: tile.TileProgram, name: str) -> tuple[int, ...]:
    """Return where the parts of a pool tensor lie: with the wefts of the role that writes it (none: everywhere)."""
    for role in program.roles:
        if any(name in register_writes(op) for op, _ in walk_body(role.body, Place(role))):
            return role_subpartitions(program, role)
    return tuple(range(SUBPARTITIONS))
