"""Operations that are one machine instruction when compiled, and a call of a user's scheduler policy by address."""

from __future__ import annotations

from collections.abc import Callable

policies: list[Callable[[int, int, int, int], int]] = []
"""Policies of uncompiled simulations, called by their place in this list."""


def ctz(x: int) -> int:
    """Return the number of trailing zero bits of x, which is not 0."""
    return int(x & -x).bit_length() - 1


def top(x: int) -> int:
    """Return the index of the highest set bit of x, which is positive."""
    return int(x).bit_length() - 1


def call_policy(address: int, ready: int, last: int, subpartition: int, t: int) -> int:
    """Call a scheduler policy."""
    return int(policies[address](int(ready), int(last), int(subpartition), int(t)))
