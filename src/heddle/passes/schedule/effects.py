"""Order among the data effects of a block: what `heddle.interp` computes must not change.

An operation's effect sits on its last instruction and is executed as a whole when that issues. So that instruction
stays behind the others of its operation, and two effects that touch the same elements, one of them writing, keep their
order even where no single register ties the two instructions together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter

from heddle.ir.warp import Access, Effect
from heddle.passes.draft import Draft

BOX = frozenset({"row", "col", "rows", "cols"})
_movement = attrgetter(*(field.name for field in fields(Access) if field.name not in BOX))
"""All of an access but the place and size of its box: what moves the box with rank, ring, item and loop."""


def effect_order(block: Sequence[Draft], effects: Sequence[Effect]) -> Iterator[tuple[int, int]]:
    """Pairs (earlier, later) of a block's instructions that must stay in this order for the sake of effects."""
    carriers: list[int] = []
    start = 0
    for index, draft in enumerate(block):
        if index and block[index - 1].row.source != draft.row.source:
            start = index
        if draft.row.effect is None:
            continue
        yield from ((member, index) for member in range(start, index))
        start = index + 1
        effect = effects[draft.row.effect]
        for earlier in carriers:
            other = block[earlier].row.effect
            if other is not None and conflict(effects[other], effect):
                yield earlier, index
        carriers.append(index)


def conflict(one: Effect, other: Effect) -> bool:
    """Whether two effects of one warp may touch the same element, and one of them writes it."""
    return (
        _any_overlap(one.writes, other.writes)
        or _any_overlap(one.writes, other.reads)
        or _any_overlap(one.reads, other.writes)
    )


def _any_overlap(some: Sequence[Access], others: Sequence[Access]) -> bool:
    return any(may_overlap(a, b) for a in some for b in others)


def may_overlap(a: Access, b: Access) -> bool:
    """Whether two accesses of one warp may share an element. Boxes are compared only where they move alike."""
    if a.object != b.object:
        return False
    if _movement(a) != _movement(b):
        return True
    apart = a.row + a.rows <= b.row or b.row + b.rows <= a.row or a.col + a.cols <= b.col or b.col + b.cols <= a.col
    return not apart
