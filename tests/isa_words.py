"""Instruction words for tests: real ones of cubins, random ones of every form; and how our text and NVIDIA's differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from heddle.isa.cubin.cubin import read_cubin
from heddle.isa.cubin.shadow import shadow_words
from heddle.isa.emission.form import forms_of
from heddle.isa.form import Form, scatter, width_of
from heddle.isa.instruction import Kind
from heddle.isa.judge import BATCH_WORDS, texts_of
from heddle.isa.layouts import LAYOUTS
from heddle.isa.table import Table, code_of, load_table
from heddle.isa.text_format import text_of
from heddle.isa.words import WORD_BYTES, Words, from_ints, to_ints

NEUTRAL = 0x7F1 << 105 | 7 << 12  # stall 1, no counters, no operand cache; guard PT
_REGISTER = re.compile(r"(?<![\w.])(?:UR|R|UP|P|B|SB|gsb)(?:\d+|Z|T)(?!\w)")
_NUMBERS = (0, 1, 2, 3, 5, 8, 16, 20, 33, 64, 90)
_FLOATS = (Kind.FLOAT32, Kind.FLOAT16, Kind.BFLOAT16, Kind.FLOAT64_HIGH)


def words_of_form(form: Form, table: Table, number: int, random: np.random.Generator) -> list[int]:
    """Return random words that the table describes by this form: any register, number and modifier that it prints."""
    found = []
    for _ in range(4 * number):
        word = form.constant | NEUTRAL
        for piece in form.fields:
            width = width_of(piece.bits)
            wide = piece.kind in _FLOATS or random.random() < 0.3
            value = int(random.integers(0, 1 << min(width, 62))) if wide else int(random.choice(_NUMBERS))
            word = word & ~scatter(-1, piece.bits) | scatter(value & (1 << width) - 1, piece.bits)
        for choice in form.choices:
            if not choice.in_control:
                columns = zip(*choice.texts.values(), strict=True)
                values = [value for value, texts in enumerate(columns) if None not in texts]
                word = word & ~scatter(-1, choice.bits) | scatter(int(random.choice(values)), choice.bits)
        if table.find(word) is form:
            found.append(word)
        if len(found) == number:
            break
    return found


def emitted_codes(architecture: str) -> set[int]:
    """Return the opcodes of the words that Heddle's compiler writes."""
    return {form.code for forms in forms_of(architecture).by_op.values() for form in forms if not form.own_fiber_bits}


@cache
def distinct_words(paths: tuple[Path, ...], architecture: str) -> Words:
    """Return the different instruction words of the cubins of an architecture."""
    found = []
    for path in paths:
        cubin = read_cubin(path)
        if cubin.architecture == architecture:
            found += [cubin.words(index) for index in cubin.texts]
    return np.unique(np.concatenate(found), axis=0) if found else from_ints([])


def judged(words: Words, architecture: str) -> Iterator[tuple[int, str | None, str | None]]:
    """Yield each word with our text and NVIDIA's: FIBER bits cleared, FIBER instructions as NOP."""
    shadow = shadow_words(words, architecture)
    table = load_table(architecture)
    theirs = texts_of(shadow, architecture)
    for index, (word, text) in enumerate(zip(to_ints(shadow), theirs, strict=True)):
        ours = text_of(word, table, LAYOUTS["heddle"], index % BATCH_WORDS * WORD_BYTES)
        yield word, ours, text


def differs(word: int, ours: str, theirs: str, emitted: set[int]) -> bool:
    """Return whether the texts differ: in anything where the compiler emits the opcode, else in name and registers."""
    if code_of(word) in emitted:
        return _plain(ours) != _plain(theirs)
    return _named(ours) != _named(theirs)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _named(text: str) -> tuple[str, list[str]]:
    body = re.sub(r"^@!?U?P[0-6T] ", "", _plain(text))
    return re.split(r"[ .]", body)[0], _REGISTER.findall(text)
