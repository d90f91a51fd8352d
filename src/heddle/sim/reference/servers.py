"""Servers that are charged from the issue of a request, and their arithmetic (docs/reference/engine.md, section 5)."""

from __future__ import annotations

GRAINS = 1 << 16  # a cycle


def coefficient(bytes_per_cycle: float) -> int:
    """Return K of a rate, the factor from bytes to a duration."""
    return round(2**40 / bytes_per_cycle)


def length(amount: int, factor: int) -> int:
    """Return the grains that `amount` bytes take."""
    return (amount * factor + 2**23) >> 24


class SharedServer:
    """A server that is charged from the issue of a request; its data leave when the request has come."""

    def __init__(self, bytes_per_cycle: float) -> None:
        self._factor = coefficient(bytes_per_cycle)
        self.free = 0

    def charge(self, now: int, reached: int, amount: int, idle: int = 0) -> int:
        """Charge `amount` bytes for a request issued at `now` that comes at `reached`; return when they leave.

        `idle`: grains that the server loses before.
        """
        d = self.length(amount)
        self.free = max(self.free, now) + idle + d
        return max(self.free, reached + d)

    def length(self, amount: int) -> int:
        """Return the grains that `amount` bytes take here."""
        return length(amount, self._factor)
