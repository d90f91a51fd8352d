"""The steps of an untimed run: what happens later, and the log of what has happened."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.interp._schedule_state import RunningCta, RunningWarp
from heddle.sim.result import EVENT, EventKind


class Clock:
    """Steps, the operations that end at a later one, and records. All chance comes from `seed`."""

    def __init__(self, seed: int, longest_delay: int) -> None:
        self.random = random.Random(seed)
        self.longest_delay = longest_delay
        self.now = 0
        self._count = 0
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        self._records: list[tuple[Any, ...]] = []

    def number(self) -> int:
        """A new number for an operation."""
        self._count += 1
        return self._count

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Do something at a later step."""
        heapq.heappush(self._later, (when, self.number(), action))

    def after_a_while(self, action: Callable[[], None]) -> int:
        """Do something after a random delay; returns when."""
        when = self.now + self.random.randint(1, self.longest_delay)
        self.at(when, action)
        return when

    def step(self) -> None:
        """Go on to the next step and do what is due."""
        self.now += 1
        while self._later and self._later[0][0] <= self.now:
            heapq.heappop(self._later)[2]()

    def skip(self) -> bool:
        """Go to just before the next thing that is due; returns whether there is one."""
        if self._later:
            self.now = max(self.now, self._later[0][0] - 1)
        return bool(self._later)

    def record(self, kind: EventKind, warp: RunningWarp, pc: int, begin: int, end: int, *, detail: int = 0) -> None:
        """Write a record of a warp's instruction."""
        counters = tuple(warp.counters) if kind is EventKind.ISSUE else (0, 0, 0, 0)
        self._records.append((kind, warp.cta.sm, 0, warp.index, pc, warp.item, begin, end, detail, 0, counters))

    def record_phase(self, cta: RunningCta, barrier: int, element: int) -> None:
        """Write that a phase of an mbarrier has completed."""
        zeros = (0, 0, 0, 0)
        self._records.append((EventKind.BARRIER, cta.sm, 0, -1, -1, 0, self.now, self.now, barrier, element, zeros))

    def log(self) -> NDArray[Any]:
        """All records."""
        records: NDArray[Any] = np.array(self._records, EVENT)
        return records
