"""From one word to an instruction: the fields of its form, and everything else as `extra`."""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.isa.assemble import NEGATION_BIT, PREDICATE_MASK, flags_of, word_of
from heddle.isa.form import CONTROL_LOW, ChoicePlace, CountBy, Field, Form, gather, width_of
from heddle.isa.instruction import LETTERS, Control, Fiber, Guard, Instruction, Kind, Operand, Place
from heddle.isa.layouts import Layout
from heddle.isa.table import Table, code_of
from heddle.isa.words import get_bits

_ZERO = {Kind.PREDICATE: PREDICATE_MASK, Kind.UNIFORM_PREDICATE: PREDICATE_MASK}


def instruction_of(word: int, table: Table, layout: Layout) -> Instruction:
    """Return the instruction of a 128-bit word; where no form describes it, a raw one with its bits in `extra`."""
    form = table.find(word)
    texts = None if form is None else run_texts(form, word)
    guard = Guard(get_bits(word, 14, 12), bool(word >> 15 & 1), form.uniform_guard if form else False)
    if form is None or texts is None:
        bare = Instruction(code_of(word), guard=guard, control=control_of(word))
    else:
        fiber = Fiber(not form.own_fiber_bits and bool(word >> layout.remote & 1))
        modifiers = next((text for run, text in zip(form.runs, texts, strict=True) if run.role == "modifiers"), "")
        bare = Instruction(
            code_of(word), form.name, tuple(modifiers[len(form.name) :].split(".")[1:]), guard,
            _operands(form, word, texts, layout if fiber.remote else None), control_of(word), fiber,
        )  # fmt: skip
    try:
        return _with_extra(bare, word ^ word_of(bare, table, layout))
    except UserError:  # two groups of modifier bits contradict each other: no text stands for it
        bare = Instruction(code_of(word), guard=guard, control=control_of(word))
        return _with_extra(bare, word ^ word_of(bare, table, layout))


def _with_extra(bare: Instruction, extra: int) -> Instruction:
    if not extra:
        return bare
    return replace(bare, extra=extra)


def control_of(word: int) -> Control:
    """Return the control field, bits 125:105."""
    bits = word >> CONTROL_LOW
    return Control(bits & 15, not bits >> 4 & 1, bits >> 5 & 7, bits >> 8 & 7, bits >> 11 & 63, bits >> 17 & 15)


def run_texts(form: Form, word: int) -> list[str] | None:
    """Return the text of each run; None where modifier bits have an illegal value."""
    texts = []
    for run in form.runs:
        parts = [choice_text(form, piece, word) if isinstance(piece, ChoicePlace) else piece for piece in run.pieces]
        if None in parts:
            return None
        texts.append("".join(part or "" for part in parts))
    return texts


def choice_text(form: Form, piece: ChoicePlace, word: int) -> str | None:
    """Return what a word shows at the place of a choice; `.reuse` is left to the control field."""
    choice = form.choices[piece.choice]
    if choice.in_control:
        return ""
    return choice.texts[piece.place][gather(word, choice.bits)]


def _operands(form: Form, word: int, texts: list[str], layout: Layout | None) -> tuple[Operand, ...]:
    around: dict[tuple[str, int], str] = {}
    words = []
    for run, text in zip(form.runs, texts, strict=True):
        if run.role == "word":
            if not any(isinstance(piece, ChoicePlace) for piece in run.pieces):
                continue
            words.append(Operand(Kind.NONE, "", 0, 0, suffix=text, position=max(run.position, 0)))
        else:
            around[run.role, run.field] = text
    found = []
    flags = flags_of(form)
    for number, (field, position) in enumerate(zip(form.fields, form.positions(), strict=True)):
        raw = gather(word, field.bits)
        if raw == field.hidden:
            continue
        index, negated = value_of(field, raw)
        place: Place = None
        if layout and field.kind == Kind.GPR and not field.definition and (letter := LETTERS.get(field.slot)):
            index, place = layout.read(word, letter, index, flags)
            place = None if index == zero_register(field) else place
        before, after = around.get(("prefix", number), ""), around.get(("suffix", number), "")
        operand = Operand(field.kind, field.slot, index, count_of(field, word, index), field.definition, field.update)
        found.append(replace(operand, prefix="!" * negated + before, suffix=after, place=place, position=position))
    return tuple(sorted([*found, *words], key=lambda operand: operand.position)) if words else tuple(found)


def value_of(field: Field, raw: int) -> tuple[int, bool]:
    """Return the value of a field's bits, and whether a predicate is negated."""
    width = width_of(field.bits)
    if field.kind in (Kind.PREDICATE, Kind.UNIFORM_PREDICATE):
        index = raw & PREDICATE_MASK
        return PREDICATE_MASK - index if field.complement else index, bool(raw >> NEGATION_BIT)
    if field.kind in (Kind.SIGNED, Kind.TARGET) and raw >> width - 1:
        raw -= 1 << width
    return raw * field.scale, False


def zero_register(field: Field) -> int | None:
    """Return the index that stands for RZ, URZ, PT or UPT; None for other kinds."""
    if field.kind in (Kind.GPR, Kind.UNIFORM):
        return (1 << width_of(field.bits)) - 1
    return _ZERO.get(field.kind)


def count_of(field: Field, word: int, index: int) -> int:
    """Return how many registers a field stands for: none for the zero register and for what is no register."""
    if index == zero_register(field) or field.kind > Kind.UNIFORM_PREDICATE:
        return 0
    by: CountBy | None = field.count_by
    return field.count if by is None else by.counts[gather(word, by.bits)]
