"""Time: whole cycles for warps, ticks of 1/256 cycle for servers (docs/reference/engine.md, section 1)."""

from __future__ import annotations

TICKS_PER_CYCLE = 256


def ticks(cycles: float) -> int:
    """Convert cycles to ticks, rounded."""
    return round(TICKS_PER_CYCLE * cycles)


def duration(amount: float, per_cycle: float) -> int:
    """Return the ticks that `amount` takes at a rate of `per_cycle`."""
    return round(TICKS_PER_CYCLE * amount / per_cycle)


def floor_cycles(time: int) -> int:
    """Return the cycle in which a tick lies."""
    return time // TICKS_PER_CYCLE


class Server:
    """Something that does one thing at a time; `free` is its next free time in ticks."""

    def __init__(self) -> None:
        self.free = 0

    def serve(self, time: int, length: int) -> int:
        """Occupy the server for `length` ticks from `time` or as soon as it is free; return the start."""
        start = max(self.free, time)
        self.free = start + length
        return start

    def is_free(self, cycle: int) -> bool:
        """Tell whether the server is free within this cycle."""
        return floor_cycles(self.free) <= cycle
