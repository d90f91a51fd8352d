"""Scheduler policies: which of the warps that could issue does."""

from __future__ import annotations

from collections.abc import Callable

from heddle.errors import unknown_name

Policy = Callable[[int, int, int, int], int]
"""(mask of contexts that could issue, bit that issued last or -1, subpartition, cycle) -> bit of the warp that issues.

Bit i is the i-th warp context of the subpartition; the same form as in `heddle.sim.scheduler`.
"""


def bits(mask: int) -> list[int]:
    """Return the bits that are set, ascending."""
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def gty(ready: int, last: int, subpartition: int, cycle: int) -> int:
    """Greedy, then youngest: stay with the last warp, else take the highest context."""
    return last if last in bits(ready) else bits(ready)[-1]


def gto(ready: int, last: int, subpartition: int, cycle: int) -> int:
    """Greedy, then oldest: stay with the last warp, else take the lowest context."""
    return last if last in bits(ready) else bits(ready)[0]


def lrr(ready: int, last: int, subpartition: int, cycle: int) -> int:
    """Loose round robin: the next context after the last one, cyclically."""
    return next((bit for bit in bits(ready) if bit > last), bits(ready)[0])


POLICIES: dict[str, Policy] = {"gty": gty, "gto": gto, "lrr": lrr}


def policy(scheduler: str | Policy) -> Policy:
    """Return a policy by name, or the user's own function."""
    if callable(scheduler):
        return scheduler
    if scheduler not in POLICIES:
        raise unknown_name("scheduler", scheduler, POLICIES)
    return POLICIES[scheduler]
