"""Which registers an instruction of a weft names (docs/reference/fiber.md, section 2)."""

from __future__ import annotations

from heddle.sim.core.heap import State
from heddle.sim.core.layout import P_WORDS, Q_INDEX, SUBPARTITIONS, W_BASE, W_REGISTERS, W_SUB
from heddle.sim.core.layout_fiber import (
    GROUP_LOCAL,
    GROUP_PLACE,
    GROUP_TENSOR,
    H_COLUMNS,
    H_POOL_FIRST,
    H_POOL_LIMIT,
    H_ROWS,
    H_VECTORS,
    R_WORDS,
    Y_WORDS,
)


def fiber_row(M: State, row: int) -> int:
    """Return the address in P of the third part of a row."""
    return int(M[H_ROWS] + row // P_WORDS * Y_WORDS)


def count_of(group: int) -> int:
    """Return how many registers a group has."""
    return group & 0xFFFF


def place_of(M: State, warp: int, group: int) -> int:
    """Return the subpartition of a group of registers."""
    kind = group >> 32
    if GROUP_PLACE <= kind < GROUP_TENSOR:
        return kind - GROUP_PLACE
    return int(M[M[warp + W_SUB] + Q_INDEX])


def number_of(M: State, warp: int, group: int) -> int:
    """Return the number of the first register of a group in its subpartition."""
    number = (group >> 16) & 0xFFFF
    if group >> 32 == GROUP_LOCAL:
        number += M[warp + W_BASE]
    return int(number)


def is_tensor(group: int) -> bool:
    """Tell whether a group is in tensor memory."""
    return group >> 32 == GROUP_TENSOR


def first_of(M: State, warp: int, group: int) -> int:
    """Return the address of the first register record of a group."""
    place, number = place_of(M, warp, group), number_of(M, warp, group)
    index = place * M[H_VECTORS] + number
    if is_tensor(group):
        index = SUBPARTITIONS * M[H_VECTORS] + place * M[H_COLUMNS] + number
    return int(M[warp + W_REGISTERS] + index * R_WORDS)


def in_pool(M: State, warp: int, group: int) -> bool:
    """Tell whether a group has a register of the pool."""
    if is_tensor(group):
        return True
    number = number_of(M, warp, group)
    return bool(number < M[H_POOL_LIMIT] and number + count_of(group) > M[H_POOL_FIRST])
