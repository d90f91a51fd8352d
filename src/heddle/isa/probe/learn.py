"""Learn the forms of one opcode: base word, value fields, groups of modifier bits, variants where they interfere."""

from __future__ import annotations

from itertools import pairwise

from heddle.isa.form import scatter, width_of
from heddle.isa.probe.atoms import Atoms, edits_between
from heddle.isa.probe.base import choose_base
from heddle.isa.probe.fields import Found, find_fields
from heddle.isa.probe.modifiers import Flips, find_alive, find_groups
from heddle.isa.probe.opcode import MAX_FORMS, Asks, Opcode, ask
from heddle.isa.probe.oracle import relative, together
from heddle.isa.probe.special import Lacks, lacks_of
from heddle.isa.probe.write import Learned

MAX_DEPTH = 6
_TRIED = 3  # samples asked for what kind of opcode it is
_REPAIRS = 3


def learn(opcode: Opcode) -> Asks:
    """Ask for words until the forms of an opcode are known: they are in `opcode.learned`."""
    tried = opcode.samples[:_TRIED]
    number = len(tried)
    answers = yield [*tried, *tried, *(word & ~(7 << 12) for word in tried), *opcode.samples]
    opcode.uniform_guard = any((text or "").startswith("@UP") for text, _ in answers[2 * number : 3 * number])
    for (one, here), (two, there) in zip(answers[:number], answers[number : 2 * number], strict=True):
        if one is not None and two is not None and one != two:
            opcode.is_relative = relative(one, here) == relative(two, there)
    opcode.samples = [
        word for word, (text, _) in zip(opcode.samples, answers[3 * number :], strict=True) if text is not None
    ]
    if opcode.samples:
        opcode.learned = yield from variants(opcode, 0, 0, 0)


def variants(opcode: Opcode, mask: int, value: int, depth: int) -> Asks:
    """Return the forms of the words whose bits under `mask` equal `value`, the special ones first.

    Where modifier bits change the structure of the text, each half is learned by itself.
    """
    base, atoms = yield from choose_base(opcode, mask, value)
    if base is None or opcode.tried >= MAX_FORMS:
        return []
    opcode.tried += 1
    bits = [bit for bit in opcode.bits() if not mask >> bit & 1]
    flips = Flips(
        base, atoms, dict(zip(bits, (yield from ask(opcode, [base ^ 1 << bit for bit in bits])), strict=True))
    )
    fields = find_fields(base, atoms, flips.one, opcode.is_relative)
    taken = set().union(*(found.positions for found in fields)) if fields else set()
    modifiers = [bit for bit in bits if bit not in taken]
    _, flips.alive = yield from together(
        [find_hidden(opcode, base, atoms, fields), find_alive(opcode, flips, modifiers)]
    )
    bound: set[tuple[int, int]] = set()
    lacks = Lacks()
    learned = None
    for _ in range(_REPAIRS):
        found = yield from find_groups(opcode, flips, fields, bound)
        if found.split is not None and depth < MAX_DEPTH:
            sides = (base >> found.split & 1, 1 - (base >> found.split & 1))
            halves = [
                variants(opcode, mask | 1 << found.split, value | side << found.split, depth + 1) for side in sides
            ]
            return [form for forms in (yield from together(halves)) for form in forms]
        learned = Learned(
            opcode.code, base, atoms, mask, value, fields, found.groups, found.order, opcode.uniform_guard
        )
        lacks = (yield from lacks_of(opcode, learned)) if depth < MAX_DEPTH + 2 else Lacks()
        if lacks.bound <= bound:
            break
        bound |= lacks.bound
        flips.alive = sorted({*flips.alive, *(bit for couple in bound for bit in couple)})
    more = yield from together([variants(opcode, *special, depth + 2) for special in lacks.special])
    return [*(form for forms in more for form in forms), learned]


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
            if len(inside) == 1 and not any(atom.startswith(".") for atom in atoms[start:end]):
                start, end = _tidy(atoms, start, end, found.atom)
                found.hidden, found.before, found.after = value, atoms[start : found.atom], atoms[found.atom + 1 : end]
    _separate(fields)


def _separate(fields: list[Found]) -> None:
    """Let no two fields that may be hidden share a separator: of `R2+0x10` the number has the plus sign.

    The other field's hidden value gets a form of its own (`special`).
    """
    hidden = sorted((found for found in fields if found.hidden is not None), key=lambda found: found.atom)
    for left, right in pairwise(hidden):
        if left.atom + len(left.after) >= right.atom - len(right.before):
            loser = left if left.after else right
            loser.hidden, loser.before, loser.after = None, (), ()


def _tidy(atoms: Atoms, start: int, end: int, atom: int) -> tuple[int, int]:
    """Shift a removed stretch to the left where the text would be the same: `+0x10` is removed, not `0x10+`."""
    while start > 0 and atoms[start - 1] == atoms[end - 1] and end - 1 > atom:
        start, end = start - 1, end - 1
    return start, end
