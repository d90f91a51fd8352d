"""From what was learned to an entry of a table file, and its text."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from heddle.isa.form import Bits, Form, gather, scatter, width_of
from heddle.isa.instruction import SLOTS, Kind
from heddle.isa.layouts import LAYOUTS
from heddle.isa.probe.atoms import Atoms, edits_between
from heddle.isa.probe.fields import Found
from heddle.isa.table import form_of
from heddle.isa.text_format import NEXT_BYTES, form_text

_PREDICATE = re.compile(r"^(.*?)(!?)(U?P)([0-6T])(.*)$")
_PREDICATE_SLOTS = {(83, 81): "Pu", (86, 84): "Pv", (89, 87): "Pp", (90, 87): "Pp"}


@dataclass(slots=True)
class Group:
    """Modifier bits that act together, and the whole text for each of their values."""

    bits: Bits
    texts: list[Atoms | None]


@dataclass(slots=True)
class Learned:
    """One form as it was learned from a base word."""

    code: int
    base: int
    atoms: Atoms
    mask: int
    value: int
    fields: list[Found]
    groups: list[Group]
    order: dict[tuple[int, int], int]
    uniform_guard: bool
    roles: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class Model:
    """An entry and its form; `text` is what it says of a word, with displacements for branch targets."""

    row: dict[str, Any]
    form: Form
    overlaps: list[tuple[Bits, Bits]]  # groups of modifier bits that change the same piece of text

    def text(self, word: int) -> str | None:
        """Return the text of a word with the guard that is always true."""
        return form_text(self.form, word, LAYOUTS["heddle"], -NEXT_BYTES)


@dataclass(slots=True)
class _Span:
    """Atoms start..end of the base that a placeholder stands for."""

    start: int
    end: int
    name: str
    bits: Bits


def row_of(learned: Learned, notes: list[str]) -> Model:
    """Return the table entry of a form."""
    spans: list[_Span] = []
    fields: dict[str, dict[str, Any]] = {}
    choices: list[dict[str, Any]] = []
    for found in learned.fields:
        name = _slot(found.bits)
        spans.append(_Span(found.atom - len(found.before), found.atom + 1 + len(found.after), name, found.bits))
        fields[name] = _field_row(found) | learned.roles.get(name, {})
    for group in learned.groups:
        places = _places(learned.atoms, group)
        texts = {
            place: [None if text is None else "".join(text) for text in values] for place, values in places.items()
        }
        if len(texts) == 1 and (predicate := _predicate_row(group.bits, next(iter(texts.values())))):
            (place,) = texts
            name = _slot(group.bits)
            fields[name] = predicate | learned.roles.get(name, {})
            spans.append(_Span(*place, name, group.bits))
            continue
        names: dict[str, list[str]] = {}
        for place, values in texts.items():
            name = f"m{sum(len(choice['texts']) for choice in choices) + len(names)}"
            names[name] = ["?" if text is None else text for text in values]
            spans.append(_Span(*place, name, group.bits))
        if names:
            choices.append({"bits": bits_text(group.bits), "texts": names})
    row: dict[str, Any] = {"code": learned.code, "name": learned.atoms[0]}
    overlaps: list[tuple[Bits, Bits]] = []
    row["text"] = _text(learned, spans, notes, overlaps)
    used = {name for name in re.findall(r"\{([^{}]*)\}", row["text"])}
    if learned.mask:
        row |= {"mask": f"{learned.mask:x}", "value": f"{learned.value:x}"}
    if learned.uniform_guard:
        row["uniform_guard"] = True
    row["fields"] = {name: data for name, data in fields.items() if name in used}
    shown = [{"bits": choice["bits"], "texts": _only(choice["texts"], used)} for choice in choices]
    row["choices"] = [choice for choice in shown if choice["texts"]]
    return Model(row, form_of(row), overlaps)


def _only(texts: dict[str, list[str]], names: set[str]) -> dict[str, list[str]]:
    return {name: values for name, values in texts.items() if name in names}


def _slot(bits: Bits) -> str:
    if len(bits) == 1 and (name := SLOTS.get(bits[0]) or _PREDICATE_SLOTS.get(bits[0])):
        return name
    if len(bits) == 1:
        for (high, low), name in SLOTS.items():
            if bits[0][1] == low and bits[0][0] == high - 2:
                return name  # the six bits of a uniform register
    return bits_text(bits)


def bits_text(bits: Bits) -> str:
    """Return ranges as `81:34,23:16`."""
    return ",".join(f"{high}:{low}" if high != low else f"{high}" for high, low in bits)


def _field_row(found: Found) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": found.kind.name, "bits": bits_text(found.bits)}
    if found.scale > 1:
        row["scale"] = found.scale
    if found.hidden is not None:
        row |= {"hidden": found.hidden, "before": "".join(found.before), "after": "".join(found.after)}
    if found.bits == ((23, 16),) and found.kind in (Kind.GPR, Kind.UNIFORM):
        row["role"] = "def"
    return row


def _places(atoms: Atoms, group: Group) -> dict[tuple[int, int], list[Atoms | None]]:
    """Return the stretches of the base that a group changes, and what stands there for each value."""
    edits = [None if text is None else edits_between(atoms, text) for text in group.texts]
    spans: list[tuple[int, int]] = []
    for start, end in sorted({(start, end) for some in edits if some for start, end, _ in some}):
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    places: dict[tuple[int, int], list[Atoms | None]] = {}
    for low, high in spans:
        values: list[Atoms | None] = []
        for some in edits:
            if some is None:
                values.append(None)
                continue
            inside = [(start, end, new) for start, end, new in some if low <= start and end <= high]
            text: list[str] = []
            at = low
            for start, end, new in inside:
                text += [*atoms[at:start], *new]
                at = end
            values.append((*text, *atoms[at:high]))
        places[low, high] = values
    return places


def is_predicate(atoms: Atoms, bits: Bits, texts: list[Atoms | None]) -> bool:
    """Return whether the texts of a group are those of one predicate field."""
    places = list(_places(atoms, Group(bits, texts)).values())
    joined = [[None if text is None else "".join(text) for text in values] for values in places]
    return len(joined) == 1 and _predicate_row(bits, joined[0]) is not None


def _predicate_row(bits: Bits, texts: list[str | None]) -> dict[str, Any] | None:
    """Return a predicate field if the texts are those of one."""
    width = width_of(bits)
    if width not in (3, 4):
        return None
    for complement in (False, True):
        first = _PREDICATE.match(texts[1 + 4 * complement] or "")
        if not first or first.group(2):
            continue
        before, _, kind, _, after = first.groups()
        hidden = [value for value, text in enumerate(texts) if text == ""]
        for value, text in enumerate(texts):
            index = 7 - (value & 7) if complement else value & 7
            name = f"{before}{'!' * (value >> 3)}{kind}{'T' if index == 7 else index}{after}"
            if text != name and text != "":
                break
        else:
            if len(hidden) > 1:
                return None
            row: dict[str, Any] = {
                "kind": "PREDICATE" if kind == "P" else "UNIFORM_PREDICATE", "bits": bits_text(bits)
            }  # fmt: skip
            row |= {"before": before} if before else {}
            row |= {"after": after} if after else {}
            row |= {"hidden": hidden[0]} if hidden else {}
            row |= {"complement": True} if complement else {}
            if _slot(bits) in ("Pu", "Pv"):
                row["role"] = "def"
            return row
    return None


def _text(learned: Learned, spans: list[_Span], notes: list[str], overlaps: list[tuple[Bits, Bits]]) -> str:
    """Return the text with placeholders; spans at one gap stand in the order that pairs of flips showed."""
    ordered = _in_order(spans, learned.order)
    values = {found.bits for found in learned.fields}
    parts: list[str] = []
    at = 0
    before: _Span | None = None
    for span in ordered:
        if before is not None and span.start < at:
            notes.append(f"0x{learned.code:x}: {span.name} overlaps {before.name}")
            if span.bits != before.bits and not {span.bits, before.bits} & values:
                overlaps.append((before.bits, span.bits))
            continue
        parts += [*learned.atoms[at : span.start], "{" + span.name + "}"]
        at, before = span.end, span
    return "".join([*parts, *learned.atoms[at:]])


def _in_order(spans: list[_Span], order: dict[tuple[int, int], int]) -> list[_Span]:
    def left_of(a: _Span, b: _Span) -> bool:
        for (first, second), side in order.items():
            if _has(a.bits, first) and _has(b.bits, second):
                return side < 0
            if _has(b.bits, first) and _has(a.bits, second):
                return side > 0
        return False

    result: list[_Span] = []
    waiting = sorted(spans, key=lambda span: (span.start, span.end))
    while waiting:
        gap = [span for span in waiting if (span.start, span.end) == (waiting[0].start, waiting[0].end)]
        first = next(
            (span for span in gap if not any(left_of(other, span) for other in gap if other is not span)), gap[0]
        )
        waiting.remove(first)
        result.append(first)
    return result


def _has(bits: Bits, bit: int) -> bool:
    return any(low <= bit <= high for high, low in bits)


def rest_of(form: Form, words: list[int]) -> int:
    """Return the usual value of the bits below 92 that no part of a form shows."""
    shown = form.mask | 0xFFFF | 1 << 91
    for piece in form.fields:
        shown |= scatter(-1, piece.bits)
    for choice in form.choices:
        shown |= scatter(-1, choice.bits)
    hidden = Counter(word & ~shown & (1 << 91) - 1 for word in words)
    usual = hidden.most_common(1)[0][0] if hidden else 0
    for choice in form.choices:
        values = Counter(gather(word, choice.bits) for word in words)
        usual |= scatter(values.most_common(1)[0][0], choice.bits) if values else 0
    return usual
