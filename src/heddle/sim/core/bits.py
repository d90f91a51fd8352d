"""Operations on masks of 64 bits, one or two machine instructions when compiled; calls of a user's scheduler policy.

A mask is a signed word, as everything in the core: with bit 63 it is negative. Plain Python has no such limit, so what
could leave 64 bits is a function here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

WORD = 1 << 64

Function = TypeVar("Function", bound=Callable[..., object])

policies: list[Callable[[int, int, int, int], int]] = []
"""Policies of uncompiled simulations, called by their place in this list."""


def cold(function: Function) -> Function:
    """Mark a function of the core that is seldom called; its machine code is kept away from what runs all the time."""
    return function


def unsigned(x: int) -> int:
    """Return a mask as a number that is not negative. Plain Python only."""
    return int(x) & (WORD - 1)


def signed(x: int) -> int:
    """Return the word with these 64 bits. Plain Python only."""
    return x - WORD if x >> 63 else x


def bit(i: int) -> int:
    """Return the mask with bit i, 0 to 63."""
    return signed(1 << int(i))


def ctz(x: int) -> int:
    """Return the number of trailing zero bits of x, which is not 0."""
    return (int(x) & -int(x)).bit_length() - 1


def top(x: int) -> int:
    """Return the index of the highest set bit of x, which is not 0."""
    return unsigned(x).bit_length() - 1


def drop_lowest(x: int) -> int:
    """Return x, which is not 0, without its lowest set bit."""
    return signed(unsigned(x) & (unsigned(x) - 1))


def above(x: int, i: int) -> int:
    """Return the bits of x above bit i, 0 to 63."""
    shift = int(i) + 1
    return signed(unsigned(x) >> shift << shift)


def popcount(x: int) -> int:
    """Return the number of set bits of x."""
    return unsigned(x).bit_count()


def span(first: int, last: int) -> int:
    """Return the mask with the bits first..last, 0 to 63."""
    return signed((WORD - 1) >> (63 - int(last)) >> int(first) << int(first))


def rotated(x: int, by: int) -> int:
    """Return x rotated to the right: its bit `by` becomes bit 0."""
    by = int(by) & 63
    return signed((unsigned(x) >> by | unsigned(x) << (64 - by)) & (WORD - 1))


def call_policy(address: int, ready: int, last: int, subpartition: int, t: int) -> int:
    """Call a scheduler policy."""
    return int(policies[address](unsigned(ready), int(last), int(subpartition), int(t)))
