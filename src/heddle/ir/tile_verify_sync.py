"""Rules on rings, mbarriers, expected bytes and named barriers.

What can be known without running the kernel: who arrives how often between two steps of a ring. Where conditions or
several sequences make that ambiguous, the rule is silent, and a deadlock is reported by the simulator.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from heddle.errors import SourceLocation, UserError
from heddle.ir import tile
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile_walk import Place, body_of, inside, references, walk

NAMED_BARRIERS = 16
"""Named barriers of a CTA (PTX ISA, bar)."""


def verify_rings(program: tile.TileProgram) -> None:
    """What a ring indexes has the ring's depth, and a role that uses a ring steps it."""
    depths = {ring.name: ring.depth for ring in program.rings}
    sizes = {barrier.name: barrier.count for barrier in program.barriers}
    sizes |= {shared.name: shared.stages for shared in program.shared}
    sizes |= {memory.name: memory.stages for memory in program.tensor_memory}
    uses: dict[tuple[str, str], SourceLocation | None] = {}
    steps: set[tuple[str, str]] = set()
    for op, place in walk(program):
        for ref in (
            *references(op, tile.SharedRef),
            *references(op, tile.TmemRef),
            *references(op, tile.BarrierUse),
        ):
            name = ref.name if isinstance(ref, tile.BarrierUse) else ref.tile
            if ref.ring is not None:
                if depths[ref.ring] != sizes[name]:
                    raise UserError(
                        f"ring {ref.ring!r} has {depths[ref.ring]} stages, {name!r} has {sizes[name]}", where=op.where
                    )
                if place.in_item:
                    uses.setdefault((place.role.name, ref.ring), op.where)
        if isinstance(op, tile.Advance):
            steps |= {(place.role.name, ring) for ring in op.rings}
    for (role, ring), where in uses.items():
        if (role, ring) not in steps:
            raise UserError(
                f"role {role!r} uses ring {ring!r} but never steps it", where=where, hint=f"call {ring}.advance()"
            )


def verify_arrivals(program: tile.TileProgram) -> None:
    """An mbarrier that is waited for completes: the arrivals of all roles in one phase are its count."""
    for barrier in program.barriers:
        waits = [op for op, _ in walk(program) if isinstance(op, tile.Wait) and op.barrier.name == barrier.name]
        phases = [phase for role in program.roles for phase in _phases(program, role, barrier.name)]
        if waits and not phases:
            raise UserError(f"nobody arrives at barrier {barrier.name!r}, so this waits for ever", where=waits[0].where)
        always = {phase.role: phase.arrivals for phase in phases if not phase.conditional}
        if any(always[phase.role] != phase.arrivals for phase in phases if phase.role in always):
            continue
        totals = _totals(sum(always.values()), [phase for phase in phases if phase.role not in always])
        if phases and barrier.arrivals not in totals:
            counts = ", ".join(sorted({f"{phase.role}: {phase.arrivals}" for phase in phases}))
            raise UserError(
                f"barrier {barrier.name!r} is declared for {barrier.arrivals} arrivals, but a phase gets "
                f"{' or '.join(map(str, sorted(totals)))} ({counts})",
                where=phases[0].where,
            )


class _Phase:
    """The arrivals of one role between two steps of the ring, at one CTA's barrier."""

    def __init__(self, role: str, conditional: bool, where: SourceLocation | None) -> None:
        self.role, self.conditional, self.where = role, conditional, where
        self.arrivals = 0


def _totals(always: int, conditional: list[_Phase]) -> set[int]:
    """Return the arrivals that a phase may get: of roles that arrive under conditions some, one at least."""
    roles = {phase.role for phase in conditional}
    choices = [{0} | {phase.arrivals for phase in conditional if phase.role == role} for role in sorted(roles)]
    sums = {always + sum(chosen) for chosen in itertools.product(*choices)}
    return sums - {always} if roles else sums


def _phases(program: tile.TileProgram, role: tile.RoleBody, barrier: str) -> Iterator[_Phase]:
    yield from _body_phases(program, role.body, Place(role), barrier)


def _body_phases(program: tile.TileProgram, body: tuple[tile.Op, ...], place: Place, barrier: str) -> Iterator[_Phase]:
    """Yield a phase for each run of operations of a body between steps of the ring that has arrivals."""
    phase: _Phase | None = None
    for op in body:
        if body_of(op):
            yield from _body_phases(program, body_of(op), inside(op, place), barrier)
        use = _arrival_use(op, barrier)
        if use is not None:
            phase = phase or _Phase(place.role.name, bool(place.flags), op.where)
            phase.arrivals += _arrival_count(program, op, use, place.role)
        if isinstance(op, tile.Advance) and phase is not None:
            yield phase
            phase = None
    if phase is not None:
        yield phase


def _arrival_use(op: tile.Op, barrier: str) -> tile.BarrierUse | None:
    if isinstance(op, tile.Arrive | tile.Expect | tile.MmaCommit) and op.barrier and op.barrier.name == barrier:
        return op.barrier
    return None


def _arrival_count(program: tile.TileProgram, op: tile.Op, use: tile.BarrierUse, role: tile.RoleBody) -> int:
    """Return the arrivals that the barrier of one CTA gets from all CTAs when `op` runs once everywhere."""
    senders = program.cluster_size if use.cta in ("leader", "all") and not role.leader_only else 1
    if not isinstance(op, tile.Arrive):
        return senders
    return senders * {"warp": role.warps, "group": max(1, role.warps // 4), "role": 1}[op.by]


def verify_bytes(program: tile.TileProgram) -> None:
    """The bytes that a phase expects are those of the bulk copies that signal it."""
    sizes = {shared.name: dtype_bytes(shared.dtype) for shared in program.shared}
    for role in program.roles:
        for body in _bodies(role.body):
            expected: dict[str, int] = defaultdict(int)
            copied: dict[str, int] = defaultdict(int)
            where: dict[str, SourceLocation | None] = {}
            for op in body:
                if isinstance(op, tile.Expect):
                    expected[op.barrier.name] += op.bytes
                    where[op.barrier.name] = op.where
                elif isinstance(op, tile.TmaLoad | tile.CopyToPeer):
                    copied[op.barrier.name] += op.dst.rows * op.dst.cols * sizes[op.dst.tile]
            for name, count in expected.items():
                if copied[name] and copied[name] != count:
                    raise UserError(
                        f"barrier {name!r} expects {count} bytes, the copies here bring {copied[name]}",
                        where=where[name],
                    )


def _bodies(body: tuple[tile.Op, ...]) -> Iterator[tuple[tile.Op, ...]]:
    yield body
    for op in body:
        if body_of(op):
            yield from _bodies(body_of(op))


def verify_named_barriers(program: tile.TileProgram) -> None:
    """A named barrier has one number of warps, no more than the CTA, in whole use."""
    warps_per_cta = sum(role.warps for role in program.roles)
    seen: dict[int, int] = {}
    for op, _ in walk(program):
        if not isinstance(op, tile.Sync):
            continue
        warps = op.warps or warps_per_cta
        if not 0 <= op.id < NAMED_BARRIERS or warps > warps_per_cta:
            raise UserError(
                f"named barrier {op.id} over {warps} warps; ids are 0 to {NAMED_BARRIERS - 1} and the CTA has "
                f"{warps_per_cta} warps",
                where=op.where,
            )
        if seen.setdefault(op.id, warps) != warps:
            raise UserError(f"named barrier {op.id} is used with {seen[op.id]} and with {warps} warps", where=op.where)
