"""Does NVIDIA's disassembler print what our tables print?"""

import numpy as np
import pytest

from cubins import third_party_cubins, tool
from heddle.isa.instruction import ARCHITECTURES
from heddle.isa.table import code_of, load_table
from heddle.isa.words import from_ints
from isa_words import differs, distinct_words, emitted_codes, judged, words_of_form

QUICK_WORDS = 60
WORDS_A_FORM = 8
FEWEST_INSTRUCTIONS = 100_000
ILLEGAL = ("INVALID", "???")
"""What nvdisasm prints for values of modifiers that no instruction has; the rest of such a text obeys no rule."""


def wrong_texts(words: list[int], architecture: str) -> list[str]:
    """Return what differs, and check that most words were judged at all."""
    emitted, wrong, refused, illegal = emitted_codes(architecture), [], 0, 0
    for word, ours, theirs in judged(from_ints(words), architecture):
        if theirs is None:
            refused += 1
        elif any(mark in theirs for mark in ILLEGAL):
            illegal += 1
        elif ours is not None and differs(word, ours, theirs, emitted):
            wrong.append(f"{word:032x} {code_of(word):#x}: {ours} | {theirs}")
    assert refused < len(words) / 10
    assert illegal < len(words) / 2
    return wrong


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_sample_of_forms_prints_as_nvidia_prints_it(architecture: str) -> None:
    tool("nvdisasm")
    table, random = load_table(architecture), np.random.default_rng(11)
    forms = random.permutation(np.array(table.forms, object))[:QUICK_WORDS]
    words = [word for form in forms for word in words_of_form(form, table, 1, random)]
    assert len(words) > QUICK_WORDS / 2
    assert wrong_texts(words, architecture) == []


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_form_prints_as_nvidia_prints_it(architecture: str) -> None:
    tool("nvdisasm")
    table, random = load_table(architecture), np.random.default_rng(12)
    words = [word for form in table.forms for word in words_of_form(form, table, WORDS_A_FORM, random)]
    assert wrong_texts(words, architecture) == []


@pytest.mark.slow
def test_third_party_instructions_print_as_nvidia_prints_them() -> None:
    tool("nvdisasm")
    number = 0
    for architecture in ARCHITECTURES:
        emitted = emitted_codes(architecture)
        for word, ours, theirs in judged(distinct_words(third_party_cubins(), architecture), architecture):
            assert theirs is not None, f"{word:032x}"
            if ours is not None:
                number += 1
                assert not differs(word, ours, theirs, emitted), f"{architecture} {word:032x}: {ours} | {theirs}"
    assert number >= FEWEST_INSTRUCTIONS
