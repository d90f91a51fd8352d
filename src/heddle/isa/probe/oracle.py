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
    everyone = together(list(learners.values()))
    answers: list[Answer] | None = None
    while True:
        try:
            asked = next(everyone) if answers is None else everyone.send(answers)
        except StopIteration as end:
            return dict(zip(learners, end.value, strict=True))
        if asked:
            report(f"{architecture}: {len(asked)} words")
        texts = judge.texts_of(from_ints(asked), architecture)
        answers = [(text, place % judge.BATCH_WORDS * WORD_BYTES) for place, text in enumerate(texts)]


def together(learners: list[Learner]) -> Learner:
    """Drive several learners at once, so that their questions share the runs of nvdisasm; return what each returns."""
    results: list[Any] = [None] * len(learners)
    asked: dict[int, list[int]] = {}
    answers: dict[int, list[Answer] | None] = dict.fromkeys(range(len(learners)))
    while answers:
        for number, known in answers.items():
            try:
                asked[number] = next(learners[number]) if known is None else learners[number].send(known)
            except StopIteration as end:
                results[number] = end.value
                asked.pop(number, None)
        told = yield [word for words in asked.values() for word in words]
        answers, at = {}, 0
        for number, words in asked.items():
            answers[number] = told[at : at + len(words)]
            at += len(words)
    return results


def relative(text: str, address: int) -> str:
    """Return the text of a branch with its last number as displacement from the next instruction."""
    places = list(_HEX.finditer(text))
    if not places:
        return text
    last = places[-1]
    value = int(last.group(), 16) - address - WORD_BYTES
    return f"{text[: last.start()]}{value:#x}{text[last.end() :]}"
