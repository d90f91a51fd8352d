"""Which registers an instruction of a weft names (docs/reference/fiber.md, section 2).

A group of registers of one subpartition is a word (`layout_fiber.Y_DST`).
"""

from __future__ import annotations

from heddle.sim.core.heap import State
from heddle.sim.core.layout import P_SHIFT, W_PLACE, W_REGISTERS
from heddle.sim.core.layout_fiber import GROUP_PLACE, H_ROWS, PLACE_WORDS, TENSOR_FIRST, Y_WORDS


def fiber_row(M: State, row: int) -> int:
    """Return the address in P of the third part of a row."""
    return int(M[H_ROWS] + (row >> P_SHIFT) * Y_WORDS)


def count_of(group: int) -> int:
    """Return how many registers a group has."""
    return group & 0xFFFF


def number_of(group: int) -> int:
    """Return the number of the first register of a group in its subpartition."""
    return (group >> 16) & 0xFFFF


def own_place(M: State, warp: int) -> int:
    """Return the subpartition of a weft."""
    return int(M[warp + W_PLACE])


def place_of(M: State, warp: int, group: int) -> int:
    """Return the subpartition of a group of registers."""
    kind = group >> 32
    return kind - GROUP_PLACE if kind != 0 else own_place(M, warp)


def is_tensor(group: int) -> bool:
    """Tell whether a group is in tensor memory."""
    return number_of(group) >= TENSOR_FIRST


def place_bits(M: State, warp: int, place: int) -> int:
    """Return the address of the bits of a subpartition's registers of the weft's FIBER-thread."""
    return int(M[warp + W_REGISTERS] + place * PLACE_WORDS)
