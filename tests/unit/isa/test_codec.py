"""Is every 128-bit word decoded and encoded again to itself?"""

import numpy as np
import pytest

from heddle.isa import words
from heddle.isa.codec import decode, encode
from heddle.isa.instruction import ARCHITECTURES
from heddle.isa.layouts import LAYOUTS


def random_words(number: int, architecture: str) -> words.Words:
    """Return random words, half of them with opcodes that the table knows."""
    random = np.random.default_rng(7)
    found = random.integers(0, 1 << 64, size=(number, 2), dtype=np.uint64)
    codes = random.choice(list(decode(found[:1], architecture).table.by_code), number // 2)
    words.put(found[: number // 2], 11, 0, codes)
    words.put(found[: number // 2], 91, 91, codes >> 12)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_any_word_survives_decoding_and_encoding(architecture: str, layout: str) -> None:
    program = random_words(400, architecture)
    assert (encode(decode(program, architecture, layout), architecture, layout) == program).all()


def test_a_bit_range_across_the_halves_is_read_and_written() -> None:
    program = words.from_ints([0, (1 << 128) - 1])
    words.put(program, 70, 60, 0b10110100101)
    assert words.get(program, 70, 60).tolist() == [0b10110100101] * 2
    assert words.to_ints(program)[0] == 0b10110100101 << 60
    assert words.from_bytes(words.to_bytes(program)).tolist() == program.tolist()
