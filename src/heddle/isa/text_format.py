"""Words as text: what nvdisasm prints, with the places of remote registers."""

from __future__ import annotations

from heddle.isa.assemble import flags_of
from heddle.isa.disassemble import value_of, zero_register
from heddle.isa.form import ChoicePlace, Field, Form, gather
from heddle.isa.instruction import LETTERS, Kind
from heddle.isa.layouts import RZ, Layout
from heddle.isa.numbers import value_text
from heddle.isa.table import Table
from heddle.isa.words import get_bits

NEXT_BYTES = 16  # displacements count from the next instruction


def text_of(word: int, table: Table, layout: Layout, address: int = 0) -> str | None:
    """Return the text of a word as nvdisasm prints it at an address, plus places; None where no form describes it."""
    form = table.find(word)
    return None if form is None else form_text(form, word, layout, address)


def form_text(form: Form, word: int, layout: Layout, address: int = 0) -> str | None:
    """Return the text of a word by one form, None where modifier bits are illegal."""
    parts = [guard_text(form, word)]
    remote = not form.own_fiber_bits and bool(word >> layout.remote & 1)
    for piece in form.pieces:
        if isinstance(piece, str):
            part: str | None = piece
        elif isinstance(piece, ChoicePlace):
            choice = form.choices[piece.choice]
            part = choice.texts[piece.place][gather(word, choice.bits)]
        else:
            part = _field_text(form, piece, word, layout if remote else None, address)
        if part is None:
            return None
        parts.append(part)
    return "".join(parts)


def guard_text(form: Form, word: int) -> str:
    """Return `@!P0 `, nothing for the predicate that is always true."""
    index, negated = get_bits(word, 14, 12), word >> 15 & 1
    if index == 7 and not negated:
        return ""
    letter = "UP" if form.uniform_guard else "P"
    return f"@{'!' * negated}{letter}{'T' if index == 7 else index} "


def _field_text(form: Form, field: Field, word: int, layout: Layout | None, address: int) -> str:
    raw = gather(word, field.bits)
    if raw == field.hidden:
        return ""
    value, negated = value_of(field, raw)
    if field.kind == Kind.TARGET:
        value += address + NEXT_BYTES
    place = ""
    if layout and field.kind == Kind.GPR and not field.definition and (letter := LETTERS.get(field.slot)):
        value, where = layout.read(word, letter, value, flags_of(form))
        place = "" if value == RZ else f"@{where}"
    return field.before + "!" * negated + value_text(field, value, zero_register(field)) + place + field.after
