"""Rules on wefts, windows and pool tensors of a tile program of mode fiber (docs/decisions/0006).

A pool tensor is a channel: one role produces it and states it full, one other role reads it and states it empty. One
that nobody states is a tile whose accesses tokens order. In a kernel without statements and tokens, barriers order the
roles, for machines without full and empty bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from heddle.errors import SourceLocation, UserError
from heddle.ir import tile
from heddle.ir.tile_walk import first_weft, register_reads, register_writes, uses_bits, walk
from heddle.ir.warp_fiber import FIBERS, SUBPARTITIONS

WINDOWS = (0, 1)
Uses = dict[str, dict[str, SourceLocation | None]]
"""Pool tensor -> role -> the first line of the use."""


def verify_fiber(program: tile.TileProgram) -> None:
    """Raise UserError on the first rule that the program breaks."""
    if program.mode != "fiber":
        _without_pool(program)
        return
    _wefts(program)
    _set_fiber_num(program)
    _channels(program)
    _read_as_declared(program)


def _without_pool(program: tile.TileProgram) -> None:
    if program.pool or any(role.window for role in program.roles):
        raise UserError(f"pool tensors and windows in a kernel of mode {program.mode}; call k.set_fiber_num first")
    for op, _ in walk(program):
        if isinstance(op, tile.SetFiberNum | tile.SetBusyBit | tile.TakeToken) or (
            isinstance(op, tile.Mma) and op.plus is not None
        ):
            raise UserError(
                f"{type(op).__name__} in a kernel of mode {program.mode}; it needs mode fiber", where=op.where
            )


def _wefts(program: tile.TileProgram) -> None:
    """A role has at most one weft in each subpartition: its code names registers, which two wefts would share."""
    for role in program.roles:
        if role.window not in WINDOWS:
            raise UserError(f"role {role.name!r} has window {role.window}; allowed: 0, 1", where=role.where)
        if role.warps > SUBPARTITIONS:
            raise UserError(
                f"role {role.name!r} has {role.warps} wefts; a role has up to {SUBPARTITIONS}, one a subpartition",
                where=role.where,
                hint="declare several roles and write their code in one Python function",
            )
    bits = uses_bits(program)
    for op, place in walk(program):
        if bits and isinstance(op, tile.MmaCommit | tile.MmaWait):
            raise UserError(
                f"{type(op).__name__} in a kernel of mode fiber; busy bits order its matrix instructions",
                where=op.where,
                hint="leave it out",
            )
        own = {pool.name for pool in program.pool if pool.read_by == "own"}
        pool = own & {*register_reads(op), *register_writes(op)}
        if pool and first_weft(program, place.role) % SUBPARTITIONS:
            raise UserError(
                f"role {place.role.name!r} begins at weft {first_weft(program, place.role)} and uses pool tensor "
                f"{min(pool)!r}, whose rows stay in their subpartition; it must begin at a multiple of {SUBPARTITIONS}",
                where=op.where,
            )


def _set_fiber_num(program: tile.TileProgram) -> None:
    """Weft 0 runs alone until it has set the number of fibers, which it does once, at entry, for all roles."""
    ops = [(op, place.role) for op, place in walk(program) if isinstance(op, tile.SetFiberNum)]
    if len(ops) != 1 or program.roles[0].body[0] is not ops[0][0]:
        raise UserError(
            "set_fiber_num stands once, at the entry of the first role",
            where=ops[0][0].where if ops else program.roles[0].where,
        )
    if program.roles[0].warps != 1:
        raise UserError(
            f"role {program.roles[0].name!r} has {program.roles[0].warps} wefts; the first role has one, which runs "
            "alone until it has set the number of fibers",
            where=program.roles[0].where,
            hint="name a role of one weft first in set_fiber_num",
        )
    wefts = sum(role.warps for role in program.roles)
    if ops[0][0].fibers != wefts * FIBERS:
        raise UserError(
            f"set_fiber_num of {ops[0][0].fibers} fibers; the roles have {wefts} wefts of {FIBERS}",
            where=ops[0][0].where,
        )


def _channels(program: tile.TileProgram) -> None:
    produced, consumed, stated = _uses(program)
    bits = uses_bits(program)
    for pool in program.pool:
        writers, readers = produced[pool.name], consumed[pool.name]
        if bits and not stated[pool.name, "full"] and not stated[pool.name, "empty"]:
            _tile(program, pool.name, writers, readers)
            continue
        _one_role(pool.name, "produced", writers)
        if pool.read_by == "all":
            _one_weft_each(program, pool.name, readers)
        else:
            _one_role(pool.name, "read", readers)
        (producer, line), *_ = writers.items()
        if producer in readers:
            raise UserError(
                f"pool tensor {pool.name!r} is produced and read by role {producer!r}",
                where=line,
                hint="declare it with k.registers(...), or let another role read it",
            )
        if bits:
            _stated(pool.name, "full", [producer], stated[pool.name, "full"], line)
            _stated(pool.name, "empty", list(readers), stated[pool.name, "empty"], next(iter(readers.values())))


def _read_as_declared(program: tile.TileProgram) -> None:
    """What all subpartitions read is the second operand of products, or read quarter by quarter, and that is all."""
    shared = {pool.name for pool in program.pool if pool.read_by == "all"}
    operands = {pool.name for pool in program.pool if pool.spread == "operand"}
    undivided = {pool.name for pool in program.pool if pool.warp_grid == (1, 1)}
    for op, _ in walk(program):
        second = op.b.tile if isinstance(op, tile.Mma) and isinstance(op.b, tile.PoolRef) else None
        quarters = _quarters(op)
        others = list(register_reads(op))
        for name in (*quarters, *([second] if second is not None else [])):
            others.remove(name)
        if isinstance(op, tile.Mma) and op.a in undivided:
            others.remove(str(op.a))
        wrong = next((name for name in others if name in shared), None)
        if wrong is not None:
            raise UserError(
                f"pool tensor {wrong!r} is read by all subpartitions; {type(op).__name__} reads it as rows of its own",
                where=op.where,
                hint="it can be the second operand of a product, or be read by elementwise as t[i].quarter(q)",
            )
        wrong = next((name for name in quarters if name not in shared), None)
        if wrong is not None:
            raise UserError(
                f"a quarter of {wrong!r}; only a pool tensor that all subpartitions read has quarters",
                where=op.where,
                hint='declare it with k.pool(..., read_by="all")',
            )
        if second is not None and program.architecture != "sm_80":
            raise UserError(
                f"{second!r} is the second operand of a product in registers; {program.architecture} reads it from "
                "shared memory",
                where=op.where,
            )
        if second is not None and second not in shared | operands:
            raise UserError(
                f"{second!r} is the second operand of a product; it must be a pool tensor that all subpartitions read",
                where=op.where,
                hint='declare it with k.pool(..., read_by="all")',
            )


def _quarters(op: tile.Op) -> tuple[str, ...]:
    """The sources of which an operation reads a quarter."""
    if not isinstance(op, tile.Elementwise):
        return ()
    return tuple(name for index, name in enumerate(op.sources) if op.quarter(index) is not None)


def _tile(
    program: tile.TileProgram, name: str, writers: Mapping[str, SourceLocation | None], readers: Iterable[str]
) -> None:
    """A tensor that nobody states is no channel: tokens order its accesses, which `verify_channels` checks."""
    windows = {role.window for role in program.roles if role.name in writers}
    if len(windows) != 1:
        who = f"roles {', '.join(map(repr, writers))} of both windows" if writers else "no role"
        raise UserError(
            f"pool tensor {name!r} is written by {who}; its registers lie in one window",
            where=list(writers.values())[-1] if writers else None,
        )
    if not any(readers):
        raise UserError(f"pool tensor {name!r} is written and never read", where=next(iter(writers.values())))


def _uses(program: tile.TileProgram) -> tuple[Uses, Uses, dict[tuple[str, str], dict[str, SourceLocation | None]]]:
    produced: Uses = defaultdict(dict)
    consumed: Uses = defaultdict(dict)
    stated: dict[tuple[str, str], dict[str, SourceLocation | None]] = defaultdict(dict)
    for op, place in walk(program):
        for name in register_writes(op):
            produced[name].setdefault(place.role.name, op.where)
        for name in register_reads(op):
            consumed[name].setdefault(place.role.name, op.where)
        if isinstance(op, tile.SetBusyBit) and isinstance(op.tile, str):
            stated[op.tile, op.bit].setdefault(place.role.name, op.where)
        if isinstance(op, tile.TakeToken):
            stated[op.tile, "empty"].setdefault(place.role.name, op.where)
    return produced, consumed, stated


def _one_role(name: str, verb: str, roles: dict[str, SourceLocation | None]) -> None:
    if len(roles) == 1:
        return
    who = f"roles {', '.join(map(repr, roles))}" if roles else "no role"
    raise UserError(
        f"pool tensor {name!r} is {verb} by {who}; a channel has one producer and one consumer",
        where=list(roles.values())[-1] if roles else None,
        hint="use one pool tensor for each pair of roles",
    )


def _stated(name: str, bit: str, allowed: list[str], roles: Iterable[str], where: SourceLocation | None) -> None:
    for other in roles:
        if other not in allowed:
            who = " or ".join(map(repr, allowed))
            raise UserError(f"role {other!r} states pool tensor {name!r} {bit}; only role {who} can", where=where)
    for role in allowed:
        if role not in roles:
            raise UserError(
                f"role {role!r} never states pool tensor {name!r} {bit}, so its partner waits for ever",
                where=where,
                hint=f'call k.set_busy_bit({name}, "{bit}") after the last {"write" if bit == "full" else "read"}',
            )


def _one_weft_each(program: tile.TileProgram, name: str, readers: Mapping[str, SourceLocation | None]) -> None:
    """Each subpartition has one part of a full bit: up to one of its wefts gives a datum back there."""
    if not readers:
        _one_role(name, "read", {})
    homes: dict[int, str] = {}
    for role in (role for role in program.roles if role.name in readers):
        first = first_weft(program, role)
        for home in sorted({weft % SUBPARTITIONS for weft in range(first, first + role.warps)}):
            if home in homes:
                raise UserError(
                    f"pool tensor {name!r} is read by roles {homes[home]!r} and {role.name!r}, both with a weft in "
                    f"subpartition {home}; up to one weft in each subpartition gives a datum back",
                    where=readers[role.name],
                    hint="give the roles wefts in different subpartitions, or use one tensor for each",
                )
            homes[home] = role.name
