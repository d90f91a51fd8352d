"""Pass 0 (sm_80): load the first fragments of the next tile during the last products of this one.

A multistage loop waits for a copy, meets the other warps, starts a copy and multiplies. Written so, the tensor cores
idle from the barrier until the first ldmatrix has returned. Library kernels move the wait and the barrier of the next
iteration in front of the last k-step of this one, and load the next tile's first fragments there. This pass does the
same: consecutive loops [wait, sync, ..., mma, advance] over one ring become

    wait, sync, first fragments;  loops [..., mma with (advance, wait, sync) before its last k-step];  last iteration
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

from heddle.ir.tile import Advance, CpAsyncWait, For, ForEachItem, Mma, Op, RoleBody, SharedRef, Sync, TileProgram, When
from heddle.ir.warp import Count
from heddle.machine.spec import Machine
from heddle.passes.pipeline_turns import turns
from heddle.passes.pipelined import FirstFragments, PipelinedMma


@dataclass(frozen=True, slots=True)
class PipelineFragments:
    """Rotate the loops of sm_80 programs that have the pattern; leave everything else alone."""

    enabled: bool = True

    def run(self, program: TileProgram, machine: Machine) -> TileProgram:
        """Return the program with rotated loops."""
        if not self.enabled or program.architecture != "sm_80":
            return program
        return replace(program, roles=tuple(_role(role) for role in program.roles))


def _role(role: RoleBody) -> RoleBody:
    return replace(role, body=_body(role.body))


def _body(body: tuple[Op, ...]) -> tuple[Op, ...]:
    result: list[Op] = []
    index = 0
    while index < len(body):
        rotated, taken = turns(body[index:])
        chain = [] if taken else _chain(body[index:])
        if taken:
            result += rotated
            index += taken
        elif chain:
            result += _rotate(chain)
            index += len(chain)
        else:
            op = body[index]
            result.append(replace(op, body=_body(op.body)) if isinstance(op, For | ForEachItem | When) else op)
            index += 1
    return tuple(result)


@dataclass(frozen=True, slots=True)
class _Parts:
    """A loop of the pattern, taken apart."""

    loop: For
    wait: CpAsyncWait
    sync: Sync
    middle: tuple[Op, ...]
    mma: Mma
    advance: Advance


def _parts(op: Op) -> _Parts | None:
    if not isinstance(op, For):
        return None
    match op.body:
        case (CpAsyncWait() as wait, Sync() as sync, *middle, Mma() as mma, Advance() as advance):
            rings = {ref.ring for ref in (mma.a, mma.b) if isinstance(ref, SharedRef)}
            if isinstance(mma.a, SharedRef) and isinstance(mma.b, SharedRef) and rings == set(advance.rings):
                return _Parts(op, wait, sync, tuple(middle), mma, advance)
    return None


def _chain(body: Sequence[Op]) -> list[_Parts]:
    """The longest run of matching loops at the start of a body; the last iteration of its last loop can stand alone."""
    chain: list[_Parts] = []
    for op in body:
        parts = _parts(op)
        if parts is None or (chain and not _same(chain[0], parts)):
            break
        chain.append(parts)
    while chain and not _can_peel(chain[-1]):
        chain.pop()
    return chain


def _same(one: _Parts, other: _Parts) -> bool:
    return all(
        replace(a, where=None) == replace(b, where=None)
        for a, b in ((one.mma, other.mma), (one.wait, other.wait), (one.sync, other.sync), (one.advance, other.advance))
    )


def _can_peel(parts: _Parts) -> bool:
    """Whether the last iteration may be written after the loop: a fixed count, and nothing that uses the counter."""
    count = parts.loop.count
    return count.attribute is None and count.value + count.offset > 0 and not _uses(parts.middle, parts.loop.name)


def _uses(value: object, loop: str) -> bool:
    """Whether an operation (or anything in it) names a loop."""
    if isinstance(value, tuple):
        return any(_uses(item, loop) for item in value)
    if is_dataclass(value):
        return any(
            getattr(value, f.name) == loop if f.name == "loop" else _uses(getattr(value, f.name), loop)
            for f in fields(value)
        )
    return False


def _rotate(chain: list[_Parts]) -> list[Op]:
    first, last = chain[0], chain[-1]
    result: list[Op] = [first.wait, first.sync, FirstFragments(mma=first.mma, where=first.mma.where)]
    for parts in chain:
        count = parts.loop.count
        if parts is last:
            count = Count(value=count.value + count.offset - 1)
        between = (parts.advance, parts.wait, parts.sync)
        mma = PipelinedMma(mma=parts.mma, between=between, prefetch=True, where=parts.mma.where)
        result.append(replace(parts.loop, count=count, body=(*parts.middle, mma)))
    end = PipelinedMma(mma=last.mma, between=(last.advance,), prefetch=False, where=last.mma.where)
    return [*result, *last.middle, end]
