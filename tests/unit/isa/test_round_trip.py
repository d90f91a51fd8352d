"""Is there a word on which decoding, encoding and decoding, or listing and assembling, disagree?"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cubins import KERNELS, own_cubin, third_party_cubins
from heddle.isa.codec import decode, encode
from heddle.isa.instruction import ARCHITECTURES
from heddle.isa.layouts import LAYOUTS
from heddle.isa.listing import listing
from heddle.isa.table import load_table
from heddle.isa.text_parse import parse_program
from heddle.isa.words import WORD_BITS, Words, from_ints
from isa_words import distinct_words

FEWEST_INSTRUCTIONS = 100_000
UNKNOWN_OPCODES: dict[str, set[int]] = {"sm_80": set(), "sm_90": set(), "sm_100": set()}
"""Opcodes of words of the public packages that no form of the tables describes."""
OWN_UNKNOWN_OPCODES = {"sm_80": {0x1FAE, 0xB60, 0xB66, 0xB99, 0xB9D}, "sm_90": {0x1297}, "sm_100": {0x1297, 0x15EA}}
"""The same for our own kernels; docs/reference/instruction_set.md names them."""

any_word = st.integers(0, (1 << WORD_BITS) - 1)
names = st.tuples(st.sampled_from(ARCHITECTURES), st.sampled_from(sorted(LAYOUTS)))


@st.composite
def near_a_form(draw: st.DrawFn, architecture: str) -> int:
    """Draw a word of a form of the table with random fields, FIBER bits among them."""
    form = draw(st.sampled_from(load_table(architecture).forms))
    word = draw(any_word) & ~form.mask | form.constant
    code = 0xFFF | 1 << 91
    return word & ~code | form.constant & code


def survives(word: int, architecture: str, layout: str) -> bool:
    """Return whether decode, encode, decode and text give the word, and the same instruction, again."""
    words = from_ints([word])
    decoded = decode(words, architecture, layout)
    again = encode(decoded, architecture, layout)
    text = "\n".join(listing(words, architecture, layout))
    return bool(
        (again == words).all()
        and decode(again, architecture, layout)[0] == decoded[0]
        and (parse_program(text, architecture, layout) == words).all()
    )


@settings(max_examples=60, deadline=None)
@given(any_word, names)
def test_any_word_survives(word: int, place: tuple[str, str]) -> None:
    assert survives(word, *place)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), names)
def test_a_word_near_a_form_survives(data: st.DataObject, place: tuple[str, str]) -> None:
    assert survives(data.draw(near_a_form(place[0])), *place)


@pytest.mark.slow
@settings(max_examples=4000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), names)
def test_many_words_near_forms_survive(data: st.DataObject, place: tuple[str, str]) -> None:
    assert survives(data.draw(near_a_form(place[0])), *place)


def lost(words: Words, architecture: str) -> int:
    """Return how many words another word comes out for."""
    return int((encode(decode(words, architecture), architecture) != words).any(axis=1).sum())


def unknown(words: Words, architecture: str) -> set[int]:
    """Return the opcodes that the table does not know."""
    decoded = decode(words, architecture)
    return set(decoded.opcode[decoded.form < 0].tolist())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "target"), KERNELS)
def test_own_kernels_survive(name: str, target: str) -> None:
    architecture = target.removesuffix("a")
    words = distinct_words((own_cubin(name, target),), architecture)
    assert len(words) > 200
    assert lost(words, architecture) == 0
    assert unknown(words, architecture) <= OWN_UNKNOWN_OPCODES[architecture]


@pytest.mark.slow
def test_third_party_instructions_survive() -> None:
    instructions, not_known = 0, {}
    for architecture in ARCHITECTURES:
        words = distinct_words(third_party_cubins(), architecture)
        assert lost(words, architecture) == 0
        instructions += len(words)
        not_known[architecture] = unknown(words, architecture)
    assert instructions >= FEWEST_INSTRUCTIONS
    assert not_known == UNKNOWN_OPCODES


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_third_party_listings_assemble_to_the_same_words(architecture: str) -> None:
    words = distinct_words(third_party_cubins(), architecture)
    some = words[np.random.default_rng(5).permutation(len(words))[:20_000]]
    assert (parse_program("\n".join(listing(some, architecture)), architecture) == some).all()
