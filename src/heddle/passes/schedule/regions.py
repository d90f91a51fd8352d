"""Blocks of code inside which instructions may change places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heddle.ir.opcodes import OPCODES, Unit
from heddle.passes.draft import PSEUDO, Draft

# Nothing crosses these: control flow, every place where a warp may wait for other warps or for copies, and the end of
# a group of copies.
BARRIERS = frozenset(
    {
        Unit.GROUP_COMMIT,
        Unit.GROUP_WAIT,
        Unit.BULK_WAIT,
        Unit.MBARRIER_WAIT,
        Unit.BARRIER_SYNC,
        Unit.BARRIER_ARRIVE,
        Unit.CLUSTER_SYNC,
        Unit.SET_REGISTERS,
        Unit.SEM_RELEASE,
        Unit.SEM_ACQUIRE,
        Unit.LOOP,
        Unit.SKIP,
        Unit.NEXT_ITEM,
        Unit.EXIT,
        Unit.SPLIT,
        Unit.REJOIN,
        Unit.YIELD,
    }
)
FIXED_PLACES = frozenset({"BRA", "BSSY", "NOP"})  # the branch to a retry loop; where fibers may part; a delay


KEPT = frozenset({"LDGSTS"})
"""A block with these keeps its order: copies hold their addresses in registers until the load/store unit takes them;
addresses computed ahead of their copies only add waits for registers that are still held."""


def is_boundary(draft: Draft) -> bool:
    """Whether a draft is the border between two blocks."""
    return draft.op in PSEUDO or draft.op in FIXED_PLACES or OPCODES[draft.op].unit in BARRIERS


def regions(code: Sequence[Draft]) -> Iterator[tuple[int, int]]:
    """Ranges [start, end) that cover the code in order; a boundary is a range of its own."""
    start = 0
    for index, draft in enumerate(code):
        if is_boundary(draft):
            if start < index:
                yield start, index
            yield index, index + 1
            start = index + 1
    if start < len(code):
        yield start, len(code)
