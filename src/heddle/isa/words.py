"""Programs as arrays of 128-bit words: `uint64` of shape (n, 2), low word first, and bit ranges of them.

A bit range is written (high bit, low bit), both inclusive, from 0 to 127, as in the documents of the instruction set.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError

WORD_BYTES = 16
WORD_BITS = 128
HALF_BITS = 64
_HALF_MASK = (1 << HALF_BITS) - 1

Words = NDArray[np.uint64]
"""Instruction words, shape (n, 2): column 0 holds bits 63:0, column 1 bits 127:64."""


def from_bytes(data: bytes) -> Words:
    """Return the words of little-endian bytes. Raises UserError if the length is no multiple of 16."""
    if len(data) % WORD_BYTES:
        raise UserError(f"{len(data)} bytes are no whole number of {WORD_BYTES}-byte instructions")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(-1, 2)


def to_bytes(words: Words) -> bytes:
    """Return the words as little-endian bytes, 16 an instruction."""
    return words.astype("<u8").tobytes()


def from_ints(values: Iterable[int]) -> Words:
    """Return the words of Python integers of up to 128 bits."""
    return from_bytes(b"".join(value.to_bytes(WORD_BYTES, "little") for value in values))


def to_ints(words: Words) -> list[int]:
    """Return each word as a Python integer."""
    return [low | high << HALF_BITS for low, high in words.tolist()]


def get(words: Words, high_bit: int, low_bit: int) -> NDArray[np.uint64]:
    """Return bits high_bit:low_bit of every word, at most 64 of them, shape (n,)."""
    width = high_bit - low_bit + 1
    if low_bit >= HALF_BITS:
        value = words[:, 1] >> np.uint64(low_bit - HALF_BITS)
    else:
        value = words[:, 0] >> np.uint64(low_bit)
        if high_bit >= HALF_BITS and low_bit:
            value = value | words[:, 1] << np.uint64(HALF_BITS - low_bit)
    return value if width >= HALF_BITS else value & np.uint64((1 << width) - 1)


def put(words: Words, high_bit: int, low_bit: int, values: NDArray[np.integer] | int) -> None:
    """Set bits high_bit:low_bit of every word, at most 64 of them, in place; what does not fit is cut off."""
    mask = (1 << (high_bit - low_bit + 1)) - 1
    value = np.asarray(values).astype(np.uint64) & np.uint64(mask & _HALF_MASK)
    where = mask << low_bit
    low, high = where & _HALF_MASK, where >> HALF_BITS
    if low:
        words[:, 0] = (words[:, 0] & np.uint64(~low & _HALF_MASK)) | value << np.uint64(low_bit)
    if high:
        part = (
            value << np.uint64(low_bit - HALF_BITS) if low_bit >= HALF_BITS else value >> np.uint64(HALF_BITS - low_bit)
        )
        words[:, 1] = (words[:, 1] & np.uint64(~high & _HALF_MASK)) | part


def get_bits(word: int, high_bit: int, low_bit: int) -> int:
    """Return bits high_bit:low_bit of one word."""
    return word >> low_bit & (1 << (high_bit - low_bit + 1)) - 1


def put_bits(word: int, high_bit: int, low_bit: int, value: int) -> int:
    """Return one word with bits high_bit:low_bit set to `value`, which is cut to their width."""
    mask = (1 << (high_bit - low_bit + 1)) - 1
    return word & ~(mask << low_bit) | (value & mask) << low_bit
