"""What a warp did between two of its issues: the waits that the log names, and the two kinds that it leaves out.

Not logged are the stall count (and own bank conflicts) of the instruction before, which comes right after it, and the
turn of another warp of the subpartition, which comes when nothing else holds the warp up any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.metrics.stalls import stall_name
from heddle.sim.result import Stall
from heddle.trace._slices import Slice

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Covered:
    """The time for which there are records: from `first_cycle` on, but for the `skips` of fast-forward."""

    first_cycle: int
    skips: Sequence[Span]


class Gaps:
    """The gaps of one warp; `waits`: its WAIT records, `turns`: the cycles in which its subpartition issued."""

    def __init__(self, waits: NDArray[Any], turns: Collection[int], covered: Covered) -> None:
        waits = waits[np.argsort(waits["begin"], kind="stable")]
        self._spans = [(int(w["begin"]), int(w["end"]), Stall(int(w["detail"]))) for w in waits]
        self._begins = [begin for begin, _, _ in self._spans]
        self._turns, self._covered = turns, covered

    def resident(self, since: int, issue: int) -> int:
        """Return from which cycle after `since` a warp is seen to be resident, whose first issue is in cycle `issue`.

        The first CTAs are resident from cycle 0 on; the launch of others is a logged wait.
        """
        if since == self._covered.first_cycle == 0:
            return 0
        at = bisect_left(self._begins, since)
        return min(issue, self._begins[at]) if at < len(self._begins) else issue

    def between(self, begin: int, end: int, stall_end: int) -> Iterator[Slice]:
        """Yield what fills cycles `begin` to `end` between two issues; the stall count lasts up to `stall_end`."""
        at = begin
        for first, last, reason in self._logged(begin, end):
            yield from self._unlogged(at, first, begin, stall_end)
            yield from self._wait(first, last, reason)
            at = last
        yield from self._unlogged(at, end, begin, stall_end)

    def _logged(self, begin: int, end: int) -> Iterable[tuple[int, int, Stall]]:
        return self._spans[bisect_left(self._begins, begin) : bisect_left(self._begins, end)]

    def _unlogged(self, at: int, end: int, begin: int, stall_end: int) -> Iterator[Slice]:
        if at >= end:
            return
        waited = at
        if at == begin:
            waited = end
            while waited > at and waited - 1 in self._turns:
                waited -= 1
            waited = min(end, max(waited, stall_end))
        yield from self._wait(at, waited, Stall.WAIT)
        yield from self._wait(waited, end, Stall.NOT_SELECTED)

    def _wait(self, begin: int, end: int, reason: Stall) -> Iterator[Slice]:
        """Yield a wait, cut where fast-forward passed over it."""
        name = f"wait: {stall_name(reason)}"
        for first, last in self._covered.skips:
            if begin < last and first < end:
                if begin < first:
                    yield Slice(begin, first, name)
                yield Slice(max(begin, first), min(end, last), "fast-forward")
                begin = min(end, last)
        if begin < end:
            yield Slice(begin, end, name)
