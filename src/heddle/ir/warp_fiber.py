"""What FIBER adds to a warp program: bound bits, and what a FIBER-thread takes of the register file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OWN = -1
"""`Register.place` of an absolute address in the weft's own subpartition."""
TENSOR = -2
"""`Register.place` of tensor memory: the index counts groups of 32 columns of the weft's own subpartition."""
TENSOR_COLUMNS = 32
"""Columns of tensor memory that have one pair of bits in each subpartition."""
SUBPARTITIONS = 4
"""Subpartitions that the selector of a source can name."""
WINDOW = 256
"""Registers that a destination's index can name from a base on; the last of them reads as zero."""
FIBERS = 32
"""Fibers of a weft."""
BIND_SLOTS = 4
"""Source slots A, B, C, D that a bind can name."""
B_SLOT = 1
"""The one slot whose consumption can be scoped while that of others is not."""
BUSY_BIT_GROUPS = (1, 2, 4, 8)
"""Aligned registers that one DEPBAR.BIT names."""

Bit = Literal["", "empty", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """What DEPBAR.BIND binds to the next instruction of its weft (docs/reference/fiber.md, section 3).

    `consume`: source slots (0 is A) that are given back by this read; `scoped`: those of them that are given back only
    for the reader's subpartition, all or B alone (docs/decisions/0007).
    `hold`: the destination stays full until it is consumed; `readers`: in each of these subpartitions (none: once).
    """

    consume: tuple[int, ...] = ()
    hold: bool = False
    readers: tuple[int, ...] = ()
    scoped: tuple[int, ...] = ()


def wefts_of(fibers: int) -> int:
    """Return the wefts that hold a number of fibers."""
    return -(-fibers // FIBERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberNote:
    """What a FIBER-thread takes: `registers` vector registers of each subpartition, of them the pool [first, limit)."""

    registers: int
    pool_first: int = 0
    pool_limit: int = 0
