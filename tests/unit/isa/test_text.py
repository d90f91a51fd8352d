"""Does text become the right words, words the same text again, and an error a line with a caret?"""

import numpy as np
import pytest

from heddle.errors import UserError
from heddle.isa.codec import decode
from heddle.isa.listing import listing
from heddle.isa.text_parse import parse_program
from heddle.isa.words import from_ints, to_ints

HMMA = 0x042FF00000001880_000000AC2C80723C
FIBER_LINES = [
    "[B0-----:R-:W-:Y:S04] @!P0 SET_FIBER_NUM.ALL 0x40 ;",
    "[B------:R-:W-:-:S01] DEPBAR.BIT.SET.FULL R12@2:4 ;",
    "[B------:R-:W-:-:S01] DEPBAR.BIT.CLEAR.EMPTY R300@own ;",
    "[B------:R-:W-:-:S01] DEPBAR.BIND.AB.SCOPED_B.HOLD.READERS_0123 ;",
    "[B------:R-:W-:-:S01] HMMA.16816.F32 R128, R44@2, R300@own, R128@own ;",
    "[B------:R-:W-:-:S01] WMMA.N128.FP16.RS.GROUP R8, R300@own, RZ, gdesc[UR4], R8@own ;",
    "[B------:R-:W-:-:S01] FFMA R5, R44@3, RZ, R508@0 ;",
]


def test_a_real_word_prints_as_nvidia_prints_it() -> None:
    (line,) = listing(from_ints([HMMA]), "sm_90")
    assert line == "[B-1----:R-:W-:-:S08] HMMA.16816.F32 R128, R44.reuse, R172, R128 ;"


@pytest.mark.parametrize("line", FIBER_LINES)
def test_fiber_text_survives_assembling(line: str) -> None:
    words = parse_program(line, "sm_90")
    assert list(listing(words, "sm_90")) == [line]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_random_words_survive_their_listing(architecture: str) -> None:
    random = np.random.default_rng(3)
    words = random.integers(0, 1 << 64, size=(150, 2), dtype=np.uint64)
    codes = random.choice(list(decode(words[:1], architecture).table.by_code), len(words))
    words[:, 0] = words[:, 0] & ~np.uint64(0xFFF) | (codes & 0xFFF).astype(np.uint64)
    text = "\n".join(listing(words, architecture))
    assert (parse_program(text, architecture) == words).all()


def test_a_label_is_a_branch_target() -> None:
    text = "top:\n  NOP ;\n  BRA top ;\n"
    assert to_ints(parse_program(text, "sm_90"))[1] == to_ints(parse_program("NOP\nBRA 0x0", "sm_90"))[1]


@pytest.mark.parametrize(
    ("text", "said", "column"),
    [
        ("SET_FIBR_NUM 0x40", "did you mean 'SET_FIBER_NUM'", 1),
        ("SET_FIBER_NUM 0x40000", "16 bits", 15),
        ("FFMA R1, R2, R3", "expected", 16),
        ("FFMA R1, R300, R3, R4", "R300@own", 10),
        ("FFMA R1, R2@0, R3, R4", "R3 needs a place", 16),
        ("FFMA R1@2, R2, R3, R4", "without a place", 6),
        ("FFMA R1, R2@0.reuse, R3@own, R4@own", "operand cache", 10),
        ("FFMA R1, R255, R3, R4", "RZ", 10),
        ("HMMA.16816.F32 R128, R46@2, R172@0, R128@own", "multiple of 4", 22),
        ("[B01----:R-:W-:-:S99] NOP", "at most 15", 19),
    ],
)
def test_an_error_says_what_and_where(text: str, said: str, column: int) -> None:
    with pytest.raises(UserError) as caught:
        parse_program("NOP ;\n" + text, "sm_90", file="k.sass")
    message = str(caught.value)
    assert said in message
    assert message.startswith(f"k.sass:2:{column}:")
    assert message.splitlines()[2] == "  " + " " * (column - 1) + "^"
