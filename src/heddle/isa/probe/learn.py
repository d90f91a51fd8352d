"""Learn the forms of one opcode: base word, value fields, groups of modifier bits, variants where they interfere."""

from __future__ import annotations

import random
import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from heddle.errors import UserError
from heddle.isa.form import gather, scatter, width_of
from heddle.isa.probe.atoms import Atoms, atoms_of, edits_between
from heddle.isa.probe.fields import Found, find_fields, is_value, signature
from heddle.isa.probe.groups import components, depends, pairs
from heddle.isa.probe.oracle import Answer, relative
from heddle.isa.probe.write import Group, Learned, is_predicate, row_of

Asks = Generator[list[int], list[Answer], Any]

NEUTRAL_CONTROL = 0x7F1 << 105  # stall 1, no barriers, no wait, no reuse
GUARD_TRUE = 7 << 12
LOW_BITS = (1 << 92) - 1
FIRST_BIT = 16
MAX_GROUP = 9  # bits that are learned as a list of texts
MAX_DEPTH = 6
MAX_FORMS = 48
REUSE_BITS = (122, 123, 124)
_PREDICATE = re.compile(r"U?P[0-6]$")
DESCRIPTOR_BIT = 101  # sm_80's L2 descriptor flag


@dataclass(slots=True)
class Opcode:
    """What is known of an opcode while it is learned."""

    code: int
    samples: list[int]
    architecture: str
    is_relative: bool = False
    uniform_guard: bool = False
    learned: list[Learned] = field(default_factory=list)
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


def learn(opcode: Opcode) -> Asks:
    """Ask for words until the forms of an opcode are known: they are in `opcode.learned`."""
    first = opcode.samples[0]
    answers = yield [first, first, first & ~(7 << 12), *opcode.samples]
    (one, here), (two, there), (guarded, _), *rest = answers
    opcode.is_relative = one != two and one is not None and relative(one, here) == relative(two or "", there)
    opcode.uniform_guard = (guarded or "").startswith("@UP")
    opcode.samples = [word for word, (text, _) in zip(opcode.samples, rest, strict=True) if text is not None]
    if opcode.samples:
        yield from variants(opcode, 0, 0, 0)


def ask(opcode: Opcode, words: list[int]) -> Asks:
    """Return the atoms of words, None where they are illegal."""
    answers = yield words
    return [
        None if text is None else atoms_of(relative(text, address) if opcode.is_relative else text)
        for text, address in answers
    ]


def variants(opcode: Opcode, mask: int, value: int, depth: int) -> Asks:
    """Learn the words whose bits under `mask` equal `value`, in halves where modifier bits change the structure."""
    base, atoms = yield from choose_base(opcode, mask, value)
    if base is None or len(opcode.learned) >= MAX_FORMS:
        return
    bits = [bit for bit in opcode.bits() if not mask >> bit & 1]
    flips = dict(zip(bits, (yield from ask(opcode, [base ^ 1 << bit for bit in bits])), strict=True))
    fields = find_fields(base, atoms, flips, opcode.is_relative)
    yield from find_hidden(opcode, base, atoms, fields)
    taken = set().union(*(found.positions for found in fields)) if fields else set()
    modifiers = [bit for bit in bits if bit not in taken]
    split, groups, order = yield from find_groups(opcode, base, atoms, modifiers, flips, fields)
    if split is not None and depth < MAX_DEPTH:
        for side in (base >> split & 1, 1 - (base >> split & 1)):
            yield from variants(opcode, mask | 1 << split, value | side << split, depth + 1)
        return
    learned = Learned(opcode.code, base, atoms, mask, value, fields, groups, order, opcode.uniform_guard)
    if depth < MAX_DEPTH + 2:
        yield from special_values(opcode, learned, depth)
    opcode.learned.append(learned)


def choose_base(opcode: Opcode, mask: int, value: int) -> Asks:
    """Return a legal word of this variant whose text shows as many values as possible, and its atoms."""
    fitting = [word for word in opcode.samples if word & mask == value]
    tries = fitting[:24] or [
        word & ~mask | value for word in random.Random(1).sample(opcode.samples, min(24, len(opcode.samples)))
    ]
    answers = yield from ask(opcode, tries)
    legal = [(word, atoms) for word, atoms in zip(tries, answers, strict=True) if atoms is not None]
    if not legal:
        return None, ()
    base, atoms = max(legal, key=lambda pair: (_shown(pair[1]), -sum("INVALID" in atom for atom in pair[1])))
    for fills in _FILLS:
        changed = list(dict.fromkeys((base & ~bits | fill & bits) & ~mask | value & mask for bits, fill in fills))
        answers = yield from ask(opcode, changed)
        good = [
            (word, new) for word, new in zip(changed, answers, strict=True)
            if new is not None and _shown(new) >= _shown(atoms) and not _has_zero(new, atoms)
        ]  # fmt: skip
        if good:
            base, atoms = max(good, key=lambda pair: (_shown(pair[1]), _plain(pair[1])))
    return base, atoms


def _shown(atoms: Atoms) -> int:
    return sum(is_value(atom) for atom in atoms)


def _plain(atoms: Atoms) -> int:
    """Count registers that are not RZ, and few modifiers."""
    return sum(atom[-1:] != "Z" for atom in atoms if is_value(atom)) * 8 - len(atoms)


def _has_zero(new: Atoms, old: Atoms) -> bool:
    return sum(atom in ("RZ", "URZ") for atom in new) > sum(atom in ("RZ", "URZ") for atom in old)


def _fill(high: int, low: int, value: int) -> tuple[int, int]:
    bits = (1 << high - low + 1) - 1 << low
    return bits, value << low & bits


_FILLS = (
    [_fill(23, 16, 0x14), _fill(23, 16, 0x18), _fill(23, 16, 0x40)],
    [_fill(31, 24, 0x24), _fill(31, 24, 0x28)],
    [_fill(71, 64, 0x2C), _fill(71, 64, 0x28), _fill(71, 64, 0x50)],
    [_fill(63, 40, 0x000120), _fill(63, 32, 0x3FA80000), _fill(53, 40, 0x0120), _fill(63, 40, 0x000520)],
    [_fill(39, 32, 0x30), _fill(39, 32, 0x28)],
    [_fill(47, 40, 0x14)],
    [_fill(89, 87, 3)],
    [_fill(70, 68, 4)],
    [_fill(79, 77, 5)],
)
"""Values tried in the places of registers and numbers, one place after the other: no zero register, all different."""


def find_hidden(opcode: Opcode, base: int, atoms: Atoms, fields: list[Found]) -> Asks:
    """Find the values that are not printed: zero of offsets, all ones of registers."""
    tries = [(found, value) for found in fields for value in (0, (1 << width_of(found.bits)) - 1)]
    words = [base & ~scatter(-1, found.bits) | scatter(value, found.bits) for found, value in tries]
    answers = yield from ask(opcode, words)
    for (found, value), new in zip(tries, answers, strict=True):
        if new is None or len(new) >= len(atoms):
            continue
        edits = edits_between(atoms, new)
        if len(edits) == 1 and not edits[0][2] and edits[0][0] <= found.atom < edits[0][1]:
            start, end, _ = edits[0]
            inside = [other for other in fields if start <= other.atom < end]
            if len(inside) == 1:
                start, end = _tidy(atoms, start, end, found.atom)
                found.hidden, found.before, found.after = value, atoms[start : found.atom], atoms[found.atom + 1 : end]


def _tidy(atoms: Atoms, start: int, end: int, atom: int) -> tuple[int, int]:
    """Shift a removed stretch to the left where the text would be the same: `+0x10` is removed, not `0x10+`."""
    while start > 0 and atoms[start - 1] == atoms[end - 1] and end - 1 > atom:
        start, end = start - 1, end - 1
    return start, end


def find_groups(
    opcode: Opcode, base: int, atoms: Atoms, bits: list[int], flips: dict[int, Atoms | None], fields: list[Found]
) -> Asks:
    """Return a bit to split at or None, the groups with their texts, and the order of insertions at one gap."""
    values = {found.atom for found in fields}
    alive = yield from find_alive(opcode, base, atoms, bits, flips)
    couples = pairs(alive)
    both = yield from ask(opcode, [base ^ 1 << a ^ 1 << b for a, b in couples])
    dependent, order = set(), {}
    for (a, b), text in zip(couples, both, strict=True):
        related, left = depends(atoms, flips[a], flips[b], text)
        if related:
            dependent.add((a, b))
        elif left:
            order[a, b] = left
    parts = components(alive, dependent)
    degree = {bit: sum(bit in couple for couple in dependent) for bit in alive}
    for part in parts:
        structural = [bit for bit in part if _structural(atoms, flips[bit], values)]
        if structural or len(part) > MAX_GROUP:
            return max(structural or part, key=lambda bit: degree[bit]), [], order
    words = [
        base & ~_positions(part) | scatter(value, _bits(part)) for part in parts for value in range(1 << len(part))
    ]
    answers = iter((yield from ask(opcode, words)))
    groups = []
    for part in parts:
        texts = [next(answers) for _ in range(1 << len(part))]
        if (odd := _odd_bit(base, atoms, part, texts, values, degree)) is not None:
            return odd, [], order
        if any(text is not None and text != atoms for text in texts) or (
            None in texts and texts.count(None) < len(texts)
        ):
            groups.append(Group(_bits(part), texts))
    return None, groups, order


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


def find_alive(opcode: Opcode, base: int, atoms: Atoms, bits: list[int], flips: dict[int, Atoms | None]) -> Asks:
    """Return the bits that change the text, alone or together with others."""
    alive = [bit for bit in bits if flips[bit] != atoms]
    dead = [bit for bit in bits if flips[bit] == atoms]
    random_bits = random.Random(2)
    halves = [sum(1 << bit for bit in dead if random_bits.random() < 0.5) for _ in range(4)] if dead else []
    contexts = [0, *(1 << bit for bit in alive)]
    words = [base ^ context ^ half for context in contexts for half in halves]
    answers = yield from ask(opcode, words)
    suspicious = []
    for number, context in enumerate(contexts):
        expected = atoms if not context else flips[context.bit_length() - 1]
        if any(text != expected for text in answers[number * len(halves) : (number + 1) * len(halves)]):
            suspicious.append(context)
    if not suspicious:
        return sorted(alive)
    couples = [(context, bit) for context in suspicious for bit in dead]
    answers = yield from ask(opcode, [base ^ context ^ 1 << bit for context, bit in couples])
    woken = {
        bit
        for (context, bit), text in zip(couples, answers, strict=True)
        if text != (atoms if not context else flips[context.bit_length() - 1])
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


def special_values(opcode: Opcode, learned: Learned, depth: int) -> Asks:
    """Learn values of fields that change the text elsewhere, such as IMAD with two zero registers (`IMAD.MOV`)."""
    fields = learned.fields
    singles = [(found, value) for found in fields for value in _specials(width_of(found.bits))]
    zeros = [found for found in fields if width_of(found.bits) <= 8]
    tries = [[single] for single in singles] + [
        [(a, (1 << width_of(a.bits)) - 1), (b, (1 << width_of(b.bits)) - 1)]
        for number, a in enumerate(zeros) for b in zeros[number + 1 :]
    ]  # fmt: skip
    words = []
    for attempt in tries:
        word = learned.base
        for found, value in attempt:
            word = word & ~scatter(-1, found.bits) | scatter(value, found.bits)
        words.append(word)
    answers = yield from ask(opcode, words)
    try:
        model = row_of(learned, opcode.notes)
    except UserError as problem:
        opcode.notes.append(f"0x{opcode.code:x}: {problem.message}")
        return
    if model.text(learned.base) != "".join(learned.atoms):
        opcode.notes.append(f"0x{opcode.code:x}: {model.text(learned.base)} is not {''.join(learned.atoms)}")
        return
    done: list[tuple[int, int]] = []
    for attempt, word, text in zip(tries, words, answers, strict=True):
        if text is None or model.text(word) == "".join(text):
            continue
        mask, value = learned.mask, learned.value
        for found, chosen in attempt:
            mask |= scatter(-1, found.bits)
            value |= scatter(chosen, found.bits)
        if any(word & other == wanted for other, wanted in done) or len(done) > 8:
            continue
        done.append((mask, value))
        opcode.samples.append(word)
        yield from variants(opcode, mask, value, depth + 2)


def _specials(width: int) -> list[int]:
    """Return values of a field that often have a text of their own."""
    top = (1 << width) - 1
    return sorted(
        {0, top, *((1, 2, 4) if width > 8 else ()), *((0x80, 0x10000, 1 << width - 1) if width == 32 else ())}
    )
