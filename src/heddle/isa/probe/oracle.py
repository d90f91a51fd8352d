"""Ask nvdisasm for many learners at once: each is a generator that yields words and is sent their texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Hashable
from typing import Any

from heddle.isa import judge
from heddle.isa.words import WORD_BYTES, from_ints

Answer = tuple[str | None, int]
"""Text of a word, None if nvdisasm refuses it, and the address that it stood at."""
Learner = Generator[list[int], list[Answer], Any]

_HEX = re.compile(r"-?0x[0-9a-f]+")


def run(learners: dict[Hashable, Learner], architecture: str, report: Callable[[str], None]) -> dict[Hashable, Any]:
    """Drive all learners to their end and return what each returns."""
    results: dict[Hashable, Any] = {}
    asked = {key: _advance(key, learner, None, results) for key, learner in learners.items()}
    while waiting := {key: words for key, words in asked.items() if words is not None}:
        everything = [word for words in waiting.values() for word in words]
        report(f"{architecture}: {len(waiting)} opcodes ask for {len(everything)} words")
        texts = judge.texts_of(from_ints(everything), architecture)
        at = 0
        asked = {}
        for key, words in waiting.items():
            places = range(at, at + len(words))
            answers = [(texts[place], place % judge.BATCH_WORDS * WORD_BYTES) for place in places]
            at += len(words)
            asked[key] = _advance(key, learners[key], answers, results)
    return results


def _advance(
    key: Hashable, learner: Learner, answers: list[Answer] | None, results: dict[Hashable, Any]
) -> list[int] | None:
    try:
        return next(learner) if answers is None else learner.send(answers)
    except StopIteration as end:
        results[key] = end.value
        return None


def relative(text: str, address: int) -> str:
    """Return the text of a branch with its last number as displacement from the next instruction."""
    places = list(_HEX.finditer(text))
    if not places:
        return text
    last = places[-1]
    value = int(last.group(), 16) - address - WORD_BYTES
    return f"{text[: last.start()]}{value:#x}{text[last.end() :]}"
