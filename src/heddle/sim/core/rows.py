"""The packed word of a program row, and what it says."""

from __future__ import annotations

from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    BY_MASK,
    BY_SHIFT,
    COUNTERS_MASK,
    COUNTERS_SHIFT,
    P_FLAGS,
    QUEUE_MASK,
    QUEUE_SHIFT,
    UNIT_MASK,
    W_OFF,
    WAIT_MASK,
    WAIT_SHIFT,
)


def unit_of(P: Program, row: int) -> int:
    """Return the unit of an instruction (`ir.opcodes.Unit`)."""
    return int(P[row + P_FLAGS] & UNIT_MASK)


def queue_of(P: Program, row: int) -> int:
    """Return which queue an instruction enters (QUEUE_*)."""
    return int((P[row + P_FLAGS] >> QUEUE_SHIFT) & QUEUE_MASK)


def released_of(P: Program, row: int) -> int:
    """Return which counters follow the rule of most units: bit 0 write (t + e + L), bit 1 read (t + e + 2)."""
    return int((P[row + P_FLAGS] >> COUNTERS_SHIFT) & COUNTERS_MASK)


def waits_of(P: Program, row: int) -> int:
    """Return the mask of counters that an instruction waits for."""
    return int((P[row + P_FLAGS] >> WAIT_SHIFT) & WAIT_MASK)


def is_off(M: State, P: Program, warp: int, row: int) -> bool:
    """Tell whether a warp does not act in an instruction, which other warps execute for it."""
    by = (P[row + P_FLAGS] >> BY_SHIFT) & BY_MASK
    return bool(by != 0 and (M[warp + W_OFF] >> by) & 1 != 0)
