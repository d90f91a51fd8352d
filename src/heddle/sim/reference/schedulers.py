"""Scheduler policies: which of the warps that could issue does."""

from __future__ import annotations

from collections.abc import Callable

from heddle.errors import unknown_name

Policy = Callable[[list[int], int], int]  # contexts that could issue (ascending), context that issued last (-1: none)


def gty(ready: list[int], last: int) -> int:
    """Greedy, then youngest: stay with the last warp, else take the highest context."""
    return last if last in ready else ready[-1]


def gto(ready: list[int], last: int) -> int:
    """Greedy, then oldest: stay with the last warp, else take the lowest context."""
    return last if last in ready else ready[0]


def lrr(ready: list[int], last: int) -> int:
    """Loose round robin: the next context after the last one, cyclically."""
    return next((context for context in ready if context > last), ready[0])


POLICIES: dict[str, Policy] = {"gty": gty, "gto": gto, "lrr": lrr}


def policy(scheduler: str | Policy) -> Policy:
    """Return a policy by name, or the user's own function."""
    if callable(scheduler):
        return scheduler
    if scheduler not in POLICIES:
        raise unknown_name("scheduler", scheduler, POLICIES)
    return POLICIES[scheduler]
