"""Learn modifier bits: which of them act together, and the texts of all their values."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

from heddle.isa.form import gather, scatter
from heddle.isa.probe.atoms import Atoms, edits_between
from heddle.isa.probe.fields import Found, signature
from heddle.isa.probe.groups import components, depends, pairs
from heddle.isa.probe.opcode import Asks, Opcode, ask
from heddle.isa.probe.write import Group, is_predicate

MAX_GROUP = 9  # bits that are learned as a list of texts
_PREDICATE = re.compile(r"U?P[0-6]$")


@dataclass(slots=True)
class Flips:
    """The base word of a form, its atoms, and those with each bit, and each two bits, flipped."""

    base: int
    atoms: Atoms
    one: dict[int, Atoms | None]
    two: dict[tuple[int, int], Atoms | None] = field(default_factory=dict)
    alive: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Groups:
    """A bit to split the form at, or else its groups and the order of what is inserted at one gap."""

    split: int | None
    groups: list[Group] = field(default_factory=list)
    order: dict[tuple[int, int], int] = field(default_factory=dict)


def find_groups(opcode: Opcode, flips: Flips, fields: list[Found], bound: set[tuple[int, int]]) -> Asks:
    """Return the `Groups` of the alive bits; pairs of bits in `bound` act together though their flips do not tell."""
    values = {found.atom for found in fields}
    atoms, alive = flips.atoms, flips.alive
    if not flips.two:
        couples = pairs(alive)
        both = yield from ask(opcode, [flips.base ^ 1 << a ^ 1 << b for a, b in couples])
        flips.two = dict(zip(couples, both, strict=True))
    dependent, order = set(bound), {}
    for (a, b), text in flips.two.items():
        related, left = depends(atoms, flips.one[a], flips.one[b], text)
        if related:
            dependent.add((a, b))
        elif left:
            order[a, b] = left
    parts = components(alive, dependent)
    degree = {bit: sum(bit in couple for couple in dependent) for bit in alive}
    for part in parts:
        structural = [bit for bit in part if _structural(atoms, flips.one[bit], values)]
        if structural or len(part) > MAX_GROUP:
            return Groups(max(structural or part, key=lambda bit: degree[bit]))
    words = [
        flips.base & ~_positions(part) | scatter(value, _bits(part))
        for part in parts
        for value in range(1 << len(part))
    ]
    answers = iter((yield from ask(opcode, words)))
    groups = []
    for part in parts:
        texts = [next(answers) for _ in range(1 << len(part))]
        if (odd := _odd_bit(flips.base, atoms, part, texts, values, degree)) is not None:
            return Groups(odd)
        if any(text is not None and text != atoms for text in texts) or (
            None in texts and texts.count(None) < len(texts)
        ):
            groups.append(Group(_bits(part), texts))
    return Groups(None, groups, order)


def _odd_bit(
    base: int, atoms: Atoms, part: list[int], texts: list[Atoms | None], values: set[int], degree: dict[int, int]
) -> int | None:
    """Return a bit of a group to split at, None where a list of texts, or a predicate, describes the group."""
    if len(part) > 1 and _names_predicates(atoms, texts) and not is_predicate(atoms, _bits(part), texts):
        return max(part, key=lambda bit: degree[bit])
    wild = [value for value, text in enumerate(texts) if _structural(atoms, text, values)]
    if not wild:
        return None
    usual = gather(base, _bits(part))
    return max(part, key=lambda bit: sum((value ^ usual) >> part[::-1].index(bit) & 1 for value in wild))


def find_alive(opcode: Opcode, flips: Flips, bits: list[int]) -> Asks:
    """Return the bits that change the text, alone or together with others."""
    base, atoms = flips.base, flips.atoms
    alive = [bit for bit in bits if flips.one[bit] != atoms]
    dead = [bit for bit in bits if flips.one[bit] == atoms]
    random_bits = random.Random(2)
    halves = [sum(1 << bit for bit in dead if random_bits.random() < 0.5) for _ in range(4)] if dead else []
    contexts = [0, *(1 << bit for bit in alive)]
    words = [base ^ context ^ half for context in contexts for half in halves]
    answers = yield from ask(opcode, words)
    suspicious = []
    for number, context in enumerate(contexts):
        expected = atoms if not context else flips.one[context.bit_length() - 1]
        if any(text != expected for text in answers[number * len(halves) : (number + 1) * len(halves)]):
            suspicious.append(context)
    if not suspicious:
        return sorted(alive)
    couples = [(context, bit) for context in suspicious for bit in dead]
    answers = yield from ask(opcode, [base ^ context ^ 1 << bit for context, bit in couples])
    woken = {
        bit
        for (context, bit), text in zip(couples, answers, strict=True)
        if text != (atoms if not context else flips.one[context.bit_length() - 1])
    }
    return sorted({*alive, *woken})


def _structural(atoms: Atoms, text: Atoms | None, values: set[int]) -> bool:
    """Return whether a change replaces a value, the mnemonic or adds a value that no list of texts can give."""
    if text is None or text == atoms:
        return False
    for start, end, new in edits_between(atoms, text):
        if start == 0 or any(start <= place < end for place in values):
            return True
        if any(part.startswith(("<R", "<U")) for part in signature(new)):
            return True
    return False


def _names_predicates(atoms: Atoms, texts: list[Atoms | None]) -> bool:
    """Return whether a group of bits decides which predicate stands somewhere: then it has to be a field."""
    return any(
        _PREDICATE.match(part)
        for text in texts
        if text is not None
        for _, _, new in edits_between(atoms, text)
        for part in new
    )


def _positions(bits: list[int]) -> int:
    return sum(1 << bit for bit in bits)


def _bits(part: list[int]) -> tuple[tuple[int, int], ...]:
    ranges: list[tuple[int, int]] = []
    for bit in part:
        if ranges and ranges[-1][1] == bit + 1:
            ranges[-1] = (ranges[-1][0], bit)
        else:
            ranges.append((bit, bit))
    return tuple(ranges)
