"""Full and empty bits as words of 64 registers: a group of registers is tested and changed a word at a time.

A row of words is one view of E, one part of F, or all parts of F together, of the registers of one subpartition
(`layout_fiber`, ROW_). Rows lie one behind the other, so that a word of the first row leads to those of the others.
"""

from __future__ import annotations

from heddle.sim.core.bits import span
from heddle.sim.core.heap import State
from heddle.sim.core.layout_fiber import BIT_WORDS, PARTS, ROW_ANY, ROW_FULL


def part_of(number: int, count: int, word: int) -> int:
    """Return which bits of a word belong to the `count` registers from `number` on, of which it holds at least one."""
    first = number - (word << 6)
    last = first + count - 1
    return span(first if first > 0 else 0, last if last < 63 else 63)


def change_parts(M: State, at: int, part: int, parts: int, value: int) -> None:
    """Set or clear parts of F of registers of a word; `at`: that word in the first row of their place."""
    everything = 0
    for k in range(PARTS):
        word = at + (ROW_FULL + k) * BIT_WORDS
        if (parts >> k) & 1:
            if value != 0:
                M[word] |= part
            else:
                M[word] &= ~part
        everything |= M[word]
    M[at + ROW_ANY * BIT_WORDS] = everything
