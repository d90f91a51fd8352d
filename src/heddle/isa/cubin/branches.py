"""Where branches lead: the fields of instructions that hold distances from the instruction itself.

target = place of the instruction + 16 + distance. With a register (BRX, RET.REL, CALL.REL by register) the target is
the base that the code's own register is added to. Fields were measured with nvdisasm on all three architectures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heddle.isa.cubin.cubin import opcodes
from heddle.isa.words import WORD_BYTES, Words, get, put

BRANCH = (0x947, 0x1547, 0x1947)
CALL, BRX, RETURN, SYNC, PLACE, COLLECTIVE = (0x944, 0x344), (0x949,), (0x950,), (0x945,), (0x94E,), (0x948, 0x348)
THROUGH_REGISTER = (0x344, 0x949, 0x950)
ABSOLUTE_BIT = 85
"""Bit of RET that makes it RET.ABS."""
SPLIT = ("sm_90", "sm_100")
"""Architectures whose distances have their low 8 bits in [23:16]."""


@dataclass(frozen=True, slots=True)
class Branches:
    """The instructions with a distance: index, target in bytes of the section, whether a register is added to it."""

    index: NDArray[np.int64]
    target: NDArray[np.int64]
    indirect: NDArray[np.bool_]


def _signed(values: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    shift = np.uint64(64 - bits)
    return (values << shift).view(np.int64) >> np.int64(64 - bits)


def distances(words: Words, architecture: str) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which instructions hold a distance, and every instruction's distance in bytes (0 where it has none)."""
    codes = opcodes(words)
    out = np.zeros(len(words), np.int64)
    near, sync, place = (np.isin(codes, kind) for kind in _kinds(architecture))
    near &= ~absolute_returns(words)
    high = get(words, 81, 34)
    if architecture in SPLIT:
        out[near] = _signed(high << np.uint64(8) | get(words, 23, 16), 56)[near] * 4
    else:
        out[near] = _signed(high, 48)[near] * 4
    out[sync] = _signed(get(words, 63, 34), 30)[sync] * 4
    out[place] = _signed(get(words, 81, 24), 58)[place]
    return near | sync | place, out


def absolute_returns(words: Words) -> NDArray[np.bool_]:
    """Return which instructions are RET.ABS: the register alone says where they lead, and relocations keep it right."""
    found: NDArray[np.bool_] = np.isin(opcodes(words), RETURN) & (get(words, ABSOLUTE_BIT, ABSOLUTE_BIT) == 1)
    return found


def _kinds(architecture: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    near = (*BRANCH, *CALL, *BRX, *RETURN)
    if architecture in SPLIT:
        return (*near, *COLLECTIVE), SYNC, PLACE
    return near, SYNC, ()


def put_distances(words: Words, index: NDArray[np.int64], distance: NDArray[np.int64], architecture: str) -> None:
    """Write distances into instructions that have them, in place."""
    chosen, codes = words[index], opcodes(words[index])
    near, sync, place = (np.isin(codes, kind) for kind in _kinds(architecture))
    quarter = (distance // 4).view(np.uint64)
    one = chosen[near]
    if architecture in SPLIT:
        put(one, 81, 34, quarter[near] >> np.uint64(8))
        put(one, 23, 16, quarter[near])
    else:
        put(one, 81, 34, quarter[near])
    chosen[near] = one
    for kind, high, low, values in ((sync, 63, 34, quarter), (place, 81, 24, distance.view(np.uint64))):
        one = chosen[kind]
        put(one, high, low, values[kind])
        chosen[kind] = one
    words[index] = chosen


def branches(words: Words, architecture: str) -> Branches:
    """Return all distances of a section's code as targets."""
    holds, distance = distances(words, architecture)
    index = np.flatnonzero(holds)
    return Branches(index, (index + 1) * WORD_BYTES + distance[index], np.isin(opcodes(words[index]), THROUGH_REGISTER))
