"""Find what the register fields of a form are: read or written, and how many registers, by its modifiers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.isa.form import Bits, Field, gather, scatter, width_of
from heddle.isa.instruction import REGISTER_KINDS, Kind
from heddle.isa.probe.liveness import Marks
from heddle.isa.probe.write import Model, bits_text

MAX_BITS = 9
_FILES = {
    Kind.GPR: "GPR", Kind.UNIFORM: "UGPR", Kind.PREDICATE: "PRED", Kind.UNIFORM_PREDICATE: "UPRED",
}  # fmt: skip
_SPREAD = {"Rd": 8, "Ra": 72, "Rb": 136, "Rc": 168, "Re": 204}
_UNIFORM_SPREAD = {"Rd": 4, "Ra": 12, "Rb": 20, "Rc": 28, "Re": 36}
_PREDICATE_SPREAD = {"Pu": 1, "Pv": 2, "Pp": 3}


def spread(word: int, form_fields: tuple[Field, ...]) -> int:
    """Return a word whose registers are all different and far apart, so that their marks can be told apart."""
    others = iter((4, 5, 6, 0))
    for field in form_fields:
        if field.kind in (Kind.GPR, Kind.UNIFORM):
            value = (_SPREAD if field.kind == Kind.GPR else _UNIFORM_SPREAD).get(
                field.slot, 240 if field.kind == Kind.GPR else 44
            )
        elif field.kind in (Kind.PREDICATE, Kind.UNIFORM_PREDICATE):
            value = _PREDICATE_SPREAD.get(field.slot) or next(others, 0)
            value = 7 - value if field.complement else value
        else:
            continue
        word = word & ~scatter(-1, field.bits) | scatter(value, field.bits)
    return word


def counts_of(word: int, fields: tuple[Field, ...], marks: Marks) -> dict[str, tuple[str, int]]:
    """Return for each register field its role (def, use, update) and how many registers are marked from it on."""
    found = {}
    starts = {(_FILES[field.kind], _index(field, word)) for field in fields if field.kind in REGISTER_KINDS}
    for field in fields:
        if field.kind not in REGISTER_KINDS:
            continue
        file, first = _FILES[field.kind], _index(field, word)
        count = 0
        mark = marks.get((file, first), "")
        while marks.get((file, first + count), "") == mark and mark and not (count and (file, first + count) in starts):
            count += 1
        found[field.slot] = {"^": "def", "v": "use", "x": "update", "": ""}[mark], count
    return found


def _index(field: Field, word: int) -> int:
    raw = gather(word, field.bits)
    if field.kind in (Kind.PREDICATE, Kind.UNIFORM_PREDICATE):
        return 7 - (raw & 7) if field.complement else raw & 7
    return raw


def probes(base: int, model: Model) -> list[int]:
    """Return the words whose marks tell the widths: the base, and each legal value of each group of modifiers."""
    words = [base]
    for choice in model.form.choices:
        texts = list(zip(*choice.texts.values(), strict=True))
        words += [
            base & ~scatter(-1, choice.bits) | scatter(value, choice.bits)
            for value, text in enumerate(texts)
            if None not in text and not any("INVALID" in part or "???" in part for part in text)
        ]
    return words


Ask = Callable[[list[int]], list[Marks]]


def roles_from(model: Model, words: list[int], marks: list[Marks], more: Ask) -> dict[str, dict[str, Any]]:
    """Return role, count and count_by of each register field, from marks of words of which the first is the base."""
    if not words:
        return {}
    fields = model.form.fields
    found = [counts_of(word, fields, mark) for word, mark in zip(words, marks, strict=True)]
    roles: dict[str, dict[str, Any]] = {}
    for field in fields:
        if field.kind not in REGISTER_KINDS:
            continue
        counts = {word: entry[field.slot][1] for word, entry in zip(words, found, strict=True)}
        role = next((entry[field.slot][0] for entry in found if entry[field.slot][1]), "none")
        roles[field.slot] = {"role": role}
        if role != "none" and field.kind in (Kind.GPR, Kind.UNIFORM):
            roles[field.slot] |= _widths(model, words[0], counts, field, more)
    return roles


def _widths(model: Model, base: int, counts: dict[int, int], field: Field, more: Ask) -> dict[str, Any]:
    """Return how many registers a field stands for, by the modifiers that change it."""
    row: dict[str, Any] = {} if counts[base] == 1 else {"count": counts[base]}
    bits: Bits = ()
    for choice in model.form.choices:
        inside = {count for word, count in counts.items() if not (word ^ base) & ~scatter(-1, choice.bits)}
        if len(inside) > 1:
            bits += choice.bits
    if not bits or width_of(bits) > MAX_BITS:
        return row
    tried = [base & ~scatter(-1, bits) | scatter(value, bits) for value in range(1 << width_of(bits))]
    known = dict(counts)
    missing = [word for word in tried if word not in known]
    for word, mark in zip(missing, more(missing), strict=True):
        known[word] = counts_of(word, model.form.fields, mark)[field.slot][1] if mark else counts[base]
    return row | {"count_by": {"bits": bits_text(bits), "counts": [known[word] for word in tried]}}
