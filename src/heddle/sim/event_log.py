"""The log buffer of a simulation: grows when it is full, and turns into `EVENT` records."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.sim.core import layout as c
from heddle.sim.result import EVENT

FIRST_RECORDS = 1 << 14


class EventLog:
    """Records of `c.L_WORDS` words each. `level`: 0 off, 1 issues, 2 all."""

    def __init__(self, state: NDArray[np.int64], sms: int, level: int) -> None:
        self.level = level
        room = max(FIRST_RECORDS, 4 * int(state[c.H_FULL_LOG])) if level else 1
        self.buffer = np.zeros(room * c.L_WORDS, dtype=np.int64)
        state[c.H_LOG], state[c.H_LOG_SMS], state[c.H_LOG_CAPACITY] = level, sms, room

    def grow(self, state: NDArray[np.int64]) -> None:
        """Double the room."""
        larger = np.zeros(2 * len(self.buffer), dtype=np.int64)
        larger[: len(self.buffer)] = self.buffer
        self.buffer = larger
        state[c.H_LOG_CAPACITY] = len(larger) // c.L_WORDS

    def used(self, state: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a copy of the records so far."""
        return self.buffer[: int(state[c.H_LOG_COUNT]) * c.L_WORDS].copy()

    def put_back(self, state: NDArray[np.int64], records: NDArray[np.int64]) -> None:
        """Replace the records; `state` already has their number."""
        self.buffer[: len(records)] = records
        state[c.H_LOG_CAPACITY] = len(self.buffer) // c.L_WORDS

    def events(self, state: NDArray[np.int64]) -> NDArray[Any] | None:
        """Return the records as an array of `EVENT`, None if the log is off."""
        if not self.level:
            return None
        table = self.used(state).reshape(-1, c.L_WORDS)
        events = np.zeros(len(table), dtype=EVENT)
        for column, name in enumerate(("kind", "sm", "slot", "warp", "pc", "item", "begin", "end", "detail", "stage")):
            events[name] = table[:, column]
        events["counters"] = table[:, c.L_COUNTERS :]
        return events
