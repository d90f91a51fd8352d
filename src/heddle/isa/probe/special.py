"""Check a form on real and random words, and find what it lacks: values and modifiers with a text of their own."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import combinations

from heddle.errors import UserError
from heddle.isa.form import Bits, gather, scatter, width_of
from heddle.isa.probe.atoms import Atoms
from heddle.isa.probe.modifiers import MAX_GROUP
from heddle.isa.probe.opcode import Asks, Opcode, ask
from heddle.isa.probe.write import Learned, Model, row_of

MAX_SPECIALS = 34
SAMPLES_CHECKED, RANDOM_CHECKED = 60, 24
CULPRITS_SOUGHT = 4  # words whose difference is explained at a time
MAX_TRIPLES = 8  # parts of a word up to which three at a time are tried
_NARROW = 8  # bits of a field all of whose values count as usual


@dataclass(slots=True)
class Lacks:
    """What a form does not describe: pairs of bits that act together, and (mask, value) of words that need a form."""

    bound: set[tuple[int, int]] = field(default_factory=set)
    special: list[tuple[int, int]] = field(default_factory=list)

    def add(self, mask: int, value: int) -> None:
        """Note words that need a form of their own, unless another note covers them."""
        if len(self.special) < MAX_SPECIALS and not any(value & m == v and mask & m == m for m, v in self.special):
            self.special.append((mask, value))


def lacks_of(opcode: Opcode, learned: Learned) -> Asks:
    """Return what a form lacks, `Lacks`."""
    lacks = Lacks()
    try:
        model = row_of(learned, opcode.notes)
    except UserError as problem:
        opcode.notes.append(f"0x{opcode.code:x}: {problem.message}")
        return lacks
    if model.overlaps:
        lacks.bound = {
            (min(a, b), max(a, b)) for one, other in model.overlaps for a in _places(one) for b in _places(other)
        }
        return lacks
    if model.text(learned.base) != "".join(learned.atoms):
        opcode.notes.append(f"0x{opcode.code:x}: {model.text(learned.base)} is not {''.join(learned.atoms)}")
        return lacks
    tries = _special_tries(learned)
    words = [_with(learned.base, attempt) for attempt in tries]
    checked = _checked_words(opcode, learned)
    answers = yield from ask(opcode, [*words, *checked])
    for attempt, word, text in zip(tries, words, answers, strict=False):
        if _differs(model, word, text):
            mask = sum(scatter(-1, bits) for bits, _ in attempt)
            lacks.add(learned.mask | mask, learned.value | word & mask)
    for found in learned.fields:
        if width_of(found.bits) == 32 and any(mask & scatter(-1, found.bits) for mask, _ in lacks.special):
            yield from _powers(opcode, learned, model, found.bits, lacks)
    wrong = [
        word
        for word, text in zip(checked, answers[len(words) :], strict=True)
        if _differs(model, word, text) and not any(word & mask == value for mask, value in lacks.special)
    ]
    if wrong:
        yield from _explain(opcode, learned, model, wrong[:CULPRITS_SOUGHT], lacks)
    return lacks


def _powers(opcode: Opcode, learned: Learned, model: Model, bits: Bits, lacks: Lacks) -> Asks:
    """Ask for all powers of two in a number of which some value has a text of its own (`IMAD.SHL`)."""
    words = [learned.base & ~scatter(-1, bits) | scatter(1 << power, bits) for power in range(width_of(bits))]
    answers = yield from ask(opcode, words)
    mask = scatter(-1, bits)
    for word, text in zip(words, answers, strict=True):
        if _differs(model, word, text):
            lacks.add(learned.mask | mask, learned.value | word & mask)


def _differs(model: Model, word: int, text: Atoms | None) -> bool:
    return text is not None and model.text(word) != "".join(text)


def _with(base: int, attempt: list[tuple[Bits, int]]) -> int:
    for bits, value in attempt:
        base = base & ~scatter(-1, bits) | scatter(value, bits)
    return base


def _special_tries(learned: Learned) -> list[list[tuple[Bits, int]]]:
    """Return values of fields that often have a text of their own, alone, and two registers that are zero."""
    zeros = [found for found in learned.fields if width_of(found.bits) <= _NARROW]
    singles = [[(found.bits, value)] for found in learned.fields for value in _specials(width_of(found.bits))]
    return singles + [
        [(a.bits, (1 << width_of(a.bits)) - 1), (b.bits, (1 << width_of(b.bits)) - 1)]
        for a, b in combinations(zeros, 2)
    ]


def _specials(width: int) -> list[int]:
    """Return values of a field that often have a text of their own."""
    top = (1 << width) - 1
    return sorted(
        {0, top, *((1, 2, 4) if width > 8 else ()), *((0x80, 0x10000, 1 << width - 1) if width == 32 else ())}
    )


def _checked_words(opcode: Opcode, learned: Learned) -> list[int]:
    """Return samples of this form, and random values in all its parts."""
    fitting = [word for word in opcode.samples if word & learned.mask == learned.value]
    chance = random.Random(opcode.code)
    samples = chance.sample(fitting, min(SAMPLES_CHECKED, len(fitting)))
    words = []
    for _ in range(RANDOM_CHECKED):
        word = learned.base
        for bits, values in _parts(learned):
            if chance.random() < 0.5:
                word = word & ~scatter(-1, bits) | scatter(chance.choice(values), bits)
        words.append(word)
    return [*samples, *words]


def _parts(learned: Learned) -> list[tuple[Bits, list[int]]]:
    """Return the bits of each part of a form, and some legal values of them."""
    fields = [
        (found.bits, [value for value in (1, 2, 3, 5, 8, 20, 32, 90) if value < 1 << width_of(found.bits)])
        for found in learned.fields
    ]
    return fields + [
        (group.bits, [value for value, text in enumerate(group.texts) if text is not None] or [0])
        for group in learned.groups
    ]


def _explain(opcode: Opcode, learned: Learned, model: Model, wrong: list[int], lacks: Lacks) -> Asks:
    """Find for each wrong word the fewest parts, two or three, that make the text wrong."""
    known = [bits for bits, _ in _parts(learned)]
    covered = sum(scatter(-1, bits) for bits in known) | learned.mask
    dead: list[Bits] = [((bit, bit),) for bit in opcode.bits() if not covered >> bit & 1]
    asked: list[tuple[int, tuple[Bits, ...]]] = []
    for word in wrong:
        parts = [bits for bits in (*known, *dead) if gather(word, bits) != gather(learned.base, bits)]
        most = 3 if len(parts) <= MAX_TRIPLES else 2
        asked += [(word, some) for size in range(1, most + 1) for some in combinations(parts, size)]
    words = [_with(learned.base, [(bits, gather(word, bits)) for bits in some]) for word, some in asked]
    answers = yield from ask(opcode, words)
    explained: set[int] = set()
    for (word, some), mixed, text in zip(asked, words, answers, strict=True):
        if word not in explained and _differs(model, mixed, text):
            explained.add(word)
            _note(learned, word, some, lacks)
    opcode.notes += [f"0x{opcode.code:x}: not explained: {word:032x}" for word in wrong if word not in explained]


def _places(bits: Bits) -> list[int]:
    return [bit for high, low in bits for bit in range(low, high + 1)]


def _note(learned: Learned, word: int, some: tuple[Bits, ...], lacks: Lacks) -> None:
    """Note what follows from parts that together have another text."""
    values = {found.bits for found in learned.fields}
    modifiers = [bits for bits in some if bits not in values]
    bits = [bit for part in modifiers for bit in _places(part)]
    if len(modifiers) == len(some) and len(bits) <= MAX_GROUP and len(some) > 1:
        lacks.bound |= set(combinations(sorted(bits), 2))
        return
    chosen = modifiers or [part for part in some if width_of(part) <= _NARROW]
    if chosen:
        mask = sum(scatter(-1, part) for part in chosen)
        lacks.add(learned.mask | mask, learned.value | word & mask)
