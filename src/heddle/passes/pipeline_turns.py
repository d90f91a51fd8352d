"""Fragments of the next slice during the last products of this one, where roles meet at named barriers (mode fiber).

A role that multiplies waits at a barrier that says that a slice is there, multiplies, arrives at one that gives it
back, and goes on to the next. A loop of turns round a ring of such parts, and the parts of one more turn behind it,
become

    wait, first fragments;  loop, parts:  [products with (go on, next part's wait) before their last k-step; arrive]

so that ldmatrix of the next slice runs beside the last products of this one, as in `pipeline_fragments`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from heddle.ir.tile import Advance, For, Mma, Op, SharedRef, Sync
from heddle.passes.pipelined import FirstFragments, PipelinedMma


@dataclass(frozen=True, slots=True)
class _Part:
    """What is done with one slice."""

    wait: Sync
    mma: Mma
    arrive: Sync
    advance: Advance


def turns(body: Sequence[Op]) -> tuple[list[Op], int]:
    """Return what the first operations of a body become, and how many they are; none if they are no such loop."""
    loop = body[0] if body else None
    inside = _parts(loop.body) if isinstance(loop, For) else []
    if not isinstance(loop, For) or not inside or 4 * len(inside) != len(loop.body):
        return [], 0
    behind = _parts(body[1:])[: len(inside)]
    parts = [*inside, *behind]
    if len(behind) != len(inside) or any(_product(part) != _product(inside[0]) for part in parts):
        return [], 0
    first = inside[0]
    result: list[Op] = [first.wait, FirstFragments(mma=first.mma, where=first.mma.where)]
    result.append(replace(loop, body=tuple(_rotated(inside, inside[0]))))
    result += _rotated(behind, None)
    return result, 1 + 4 * len(behind)


def _parts(body: Sequence[Op]) -> list[_Part]:
    """The longest run of parts at the start of a body."""
    found = []
    for first in range(0, len(body) - 3, 4):
        match body[first : first + 4]:
            case [Sync(wait=True) as wait, Mma(a=SharedRef(), b=SharedRef()) as mma, Sync(wait=False) as arrive,
                  Advance() as advance]:  # fmt: skip
                found.append(_Part(wait, mma, arrive, advance))
            case _:
                break
    return found


def _product(part: _Part) -> tuple[Mma, Advance]:
    return replace(part.mma, where=None), replace(part.advance, where=None)


def _rotated(parts: Sequence[_Part], after: _Part | None) -> list[Op]:
    """The parts, each with the wait of the next one, the last with that of `after`."""
    result: list[Op] = []
    for part, following in zip(parts, [*parts[1:], after], strict=True):
        between = (part.advance,) if following is None else (part.advance, following.wait)
        result.append(PipelinedMma(mma=part.mma, between=between, prefetch=following is not None, where=part.mma.where))
        result.append(part.arrive)
    return result
