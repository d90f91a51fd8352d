"""Where instructions go when others are inserted before them: one map of places for each section of code."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from heddle.errors import UserError
from heddle.isa.cubin.cubin import opcodes
from heddle.isa.words import WORD_BYTES, Words, from_ints

NOP_OPCODE = 0x918
NOP = 0x000FC00000000000_0000000000007918
"""NOP as compilers write it behind the last instruction."""
SECTION_ALIGNMENT = 128
"""Code ends at a multiple of this many bytes."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Insertions into one section: before the instruction at `points[i]`, `counts[i]` instructions; sizes in bytes.

    Where `through`, what led to an instruction with insertions before it leads to these; else they are run only by what
    falls through.
    """

    points: tuple[int, ...]
    counts: tuple[int, ...]
    old_size: int
    new_size: int
    through: bool = False

    def place(self, offset: int) -> int:
        """Return where the instruction, or the byte in an instruction, at an offset of the old code is now.

        Raises UserError for an offset that lies in no old instruction.
        """
        if not 0 <= offset < self.old_size:
            raise UserError(f"offset {offset:#x} lies outside the code of {self.old_size:#x} bytes")
        return offset + WORD_BYTES * sum(self.counts[: bisect_right(self.points, offset)])

    def end(self, offset: int) -> int:
        """Return where a range of old code that ends before `offset` ends now."""
        if offset >= self.old_size:
            return self.new_size
        return 0 if offset == 0 else self.place(offset - 1) + 1

    def target(self, offset: int) -> int:
        """Return where what led to an old instruction, or to the end of the code, leads now."""
        if offset == self.old_size:
            return self.new_size
        at = bisect_right(self.points, offset) - 1
        inserted = self.counts[at] if at >= 0 and self.points[at] == offset else 0
        return self.place(offset) - WORD_BYTES * inserted * self.through


def insert(words: Words, inserted: dict[int, Words], through: bool = False) -> tuple[Words, Shift]:
    """Return code with instructions inserted before those at the given offsets, and the map of places.

    NOPs at the end make room first; else the section grows to the next multiple of 128 bytes. Raises UserError where an
    offset is no instruction of the code before its NOPs at the end.
    """
    used = used_instructions(words)
    points = tuple(sorted(inserted))
    for point in points:
        if point % WORD_BYTES or not 0 <= point < used * WORD_BYTES:
            raise UserError(
                f"cannot insert at {point:#x}: the code has instructions from 0 to {(used - 1) * WORD_BYTES:#x}"
            )
    pieces, at = [], 0
    for point in points:
        pieces += [words[at : point // WORD_BYTES], inserted[point]]
        at = point // WORD_BYTES
    total = used + sum(len(one) for one in inserted.values())
    per_line = SECTION_ALIGNMENT // WORD_BYTES
    size = max(len(words), total + -total % per_line)
    kept = min(len(words) - used, size - total)
    pieces += [words[at : used + kept], from_ints([NOP] * (size - total - kept))]
    counts = tuple(len(inserted[point]) for point in points)
    return np.concatenate(pieces), Shift(points, counts, len(words) * WORD_BYTES, size * WORD_BYTES, through)


def used_instructions(words: Words) -> int:
    """Return the number of instructions before the NOPs that fill a section at its end, at least one."""
    others = np.flatnonzero((opcodes(words) & np.uint64(0xFFF)) != NOP_OPCODE)
    return int(others[-1]) + 1 if len(others) else 1
