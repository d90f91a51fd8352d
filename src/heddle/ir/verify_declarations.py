"""Checks of what a warp program declares: roles, rings, barriers, streams, work, effects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from heddle.ir.verify_problem import Problem, duplicates, in_range, unknown
from heddle.ir.warp import LOOP_LEVELS, Access, Stream, WarpProgram


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def declaration_problems(program: WarpProgram) -> Iterator[Problem]:
    """Yield everything that is wrong with the declarations alone."""
    for check in (_names, _roles, _counts, _streams, _work, _effects):
        yield from check(program)


def _names(program: WarpProgram) -> Iterator[Problem]:
    tables: dict[str, Sequence[_Named]] = {
        "role": program.roles,
        "ring": program.rings,
        "barrier": program.barriers,
        "tensor": program.tensors,
        "stream": program.streams,
        "object": program.objects,
    }
    for kind, records in tables.items():
        yield from duplicates(kind, [record.name for record in records])
    yield from duplicates("item attribute", program.work.attributes)


def _roles(program: WarpProgram) -> Iterator[Problem]:
    if not program.roles:
        yield Problem("the program has no role; at least one is needed")
    owners: dict[int, str] = {}
    for role in program.roles:
        if role.warps < 1 or role.first_warp < 0:
            yield Problem(
                f"role {role.name!r} has {role.warps} warps from warp {role.first_warp}; needs 1 or more from 0"
            )
        if role.registers_per_thread < 1:
            yield Problem(f"role {role.name!r} has {role.registers_per_thread} registers a thread; needs 1 or more")
        if not in_range(role.entry, program):
            last = len(program.instructions) - 1
            yield Problem(f"role {role.name!r} enters at {role.entry}; the code is from 0 to {last}")
        for warp in range(role.first_warp, role.first_warp + role.warps):
            if warp in owners:
                yield Problem(f"warp {warp} belongs to role {owners[warp]!r} and to role {role.name!r}")
            owners[warp] = role.name
    missing = sorted(set(range(program.warps_per_cta)) - set(owners))
    if missing:
        yield Problem(
            f"warps {missing} of the CTA have no role; roles must cover warps 0 to {program.warps_per_cta - 1}"
        )


def _counts(program: WarpProgram) -> Iterator[Problem]:
    for ring in program.rings:
        if ring.depth < 1:
            yield Problem(f"ring {ring.name!r} has depth {ring.depth}; needs 1 or more")
    for barrier in program.barriers:
        if barrier.count < 1 or barrier.arrivals < 1:
            yield Problem(
                f"barrier {barrier.name!r}: {barrier.count} elements of {barrier.arrivals} arrivals; needs 1 or more"
            )
    for name in ("cluster_size",):
        if getattr(program, name) < 1:
            yield Problem(f"{name} = {getattr(program, name)}; needs 1 or more")
    for name in ("shared_memory_bytes", "tensor_memory_columns", "flops"):
        if getattr(program, name) < 0:
            yield Problem(f"{name} = {getattr(program, name)}; needs 0 or more")


def _streams(program: WarpProgram) -> Iterator[Problem]:
    for stream in program.streams:
        yield from (Problem(f"stream {stream.name!r}: {text}") for text in _stream(stream, program))


def _stream(stream: Stream, program: WarpProgram) -> Iterator[str]:
    for kind, name, allowed in (
        ("tensor", stream.tensor, [tensor.name for tensor in program.tensors]),
        ("item attribute", stream.base, list(program.work.attributes)),
    ):
        yield from (problem.message for problem in unknown(kind, name, allowed))
    if stream.blocks < 1 or stream.block_bytes < 1:
        yield f"{stream.blocks} blocks of {stream.block_bytes} bytes; needs 1 or more"
    if not 0 <= stream.level < LOOP_LEVELS:
        yield f"loop level {stream.level}; allowed: 0 to {LOOP_LEVELS - 1}"
    if stream.multicast not in (1, program.cluster_size):
        yield f"multicast to {stream.multicast} CTAs; allowed: 1 or the cluster size {program.cluster_size}"


def _work(program: WarpProgram) -> Iterator[Problem]:
    work = program.work
    if work.items.ndim != 2 or work.items.shape[1] != len(work.attributes):
        yield Problem(f"work items of shape {work.items.shape}; needs [items, {len(work.attributes)} attributes]")
    elif not len(work.items):
        yield Problem("there are no work items; at least one is needed")
    if work.grid < 1:
        yield Problem(f"grid = {work.grid} clusters; needs 1 or more")


def _effects(program: WarpProgram) -> Iterator[Problem]:
    for index, effect in enumerate(program.effects):
        for access in (*effect.reads, *effect.writes):
            yield from (Problem(f"effect {index} ({effect.kind}): {text}") for text in _access(access, program))


def _access(access: Access, program: WarpProgram) -> Iterator[str]:
    names = [
        ("object", access.object, [thing.name for thing in program.objects]),
        ("ring", access.ring, [ring.name for ring in program.rings]),
        ("item attribute", access.row_attribute, list(program.work.attributes)),
        ("item attribute", access.col_attribute, list(program.work.attributes)),
    ]
    for kind, name, allowed in names:
        if name is not None:
            yield from (problem.message for problem in unknown(kind, name, allowed))
    if access.rows < 1 or access.cols < 1:
        yield f"a region of {access.rows} x {access.cols} of {access.object!r}; needs 1 or more"
    if not 0 <= access.level < LOOP_LEVELS:
        yield f"loop level {access.level}; allowed: 0 to {LOOP_LEVELS - 1}"
