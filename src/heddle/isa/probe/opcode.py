"""One opcode while it is learned: its samples, and the questions about its words."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from heddle.isa.layouts import DESCRIPTOR_BIT
from heddle.isa.probe.atoms import atoms_of
from heddle.isa.probe.oracle import Answer, relative
from heddle.isa.probe.write import Learned

Asks = Generator[list[int], list[Answer], Any]

NEUTRAL_CONTROL = 0x7F1 << 105  # stall 1, no barriers, no wait, no reuse
GUARD_TRUE = 7 << 12
LOW_BITS = (1 << 92) - 1
FIRST_BIT = 16
MAX_FORMS = 64
REUSE_BITS = (122, 123, 124)


@dataclass(slots=True)
class Opcode:
    """What is known of an opcode while it is learned."""

    code: int
    samples: list[int]
    architecture: str
    is_relative: bool = False
    uniform_guard: bool = False
    learned: list[Learned] = field(default_factory=list)
    tried: int = 0
    notes: list[str] = field(default_factory=list)

    def bits(self) -> list[int]:
        """Return the bits that may be fields."""
        last = [DESCRIPTOR_BIT] if self.architecture == "sm_80" else []
        return [*range(FIRST_BIT, 91), *last, *REUSE_BITS]


def normal(word: int, architecture: str) -> int:
    """Return a word with neutral guard and control field and without unused bits."""
    kept = word & LOW_BITS & ~(15 << 12) | GUARD_TRUE | NEUTRAL_CONTROL
    return kept | word & 1 << DESCRIPTOR_BIT if architecture == "sm_80" else kept


def opcode_of(code: int, samples: list[int], architecture: str) -> Opcode:
    """Return an opcode of which only samples are known yet."""
    return Opcode(code, list(dict.fromkeys(normal(word, architecture) for word in samples)), architecture)


def ask(opcode: Opcode, words: list[int]) -> Asks:
    """Return the atoms of words, None where they are illegal."""
    answers = yield words
    return [
        None if text is None else atoms_of(relative(text, address) if opcode.is_relative else text)
        for text, address in answers
    ]
