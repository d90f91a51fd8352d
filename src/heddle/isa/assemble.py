"""From the parts of an instruction to the bits of a form: the inverse of `disassemble`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from heddle.errors import UserError
from heddle.isa.form import CONTROL_LOW, ChoicePlace, Field, Form, gather, scatter, width_of
from heddle.isa.instruction import Control, Guard, Instruction, Kind, Operand
from heddle.isa.layouts import DESCRIPTOR_BIT, Flags, Layout
from heddle.isa.table import Table, code_bits

NEGATION_BIT = 3  # of a predicate field of four bits
PREDICATE_MASK = 7


def word_of(instruction: Instruction, table: Table, layout: Layout) -> int:
    """Return the 128-bit word of an instruction. Raises UserError where no form of the opcode takes its parts."""
    bits = code_bits(instruction.opcode) | guard_bits(instruction.guard) | control_bits(instruction.control)
    if instruction.name is None:
        return bits ^ instruction.extra
    problem = f"the table of {table.architecture} has no opcode 0x{instruction.opcode:x}"
    for number in table.by_code.get(instruction.opcode, ()):
        form = table.forms[number]
        choice_bits = match_choices(form, runs_of(form, instruction))
        if choice_bits is None:
            problem = f"{instruction.mnemonic} does not take these modifiers"
            continue
        try:
            fields = field_bits(form, instruction, layout)
        except UserError as error:
            problem = error.message
            continue
        return (bits | form.constant | choice_bits | fields) ^ instruction.extra
    raise UserError(f"cannot encode {instruction.mnemonic}: {problem}")


def guard_bits(guard: Guard) -> int:
    """Return bits 15:12."""
    return (guard.index & PREDICATE_MASK) << 12 | guard.negated << 15


def control_bits(control: Control) -> int:
    """Return bits 125:105."""
    bits = control.stall | (not control.yields) << 4 | control.write_barrier << 5 | control.read_barrier << 8
    return (bits | control.wait << 11 | control.reuse << 17) << CONTROL_LOW


def field_bits(form: Form, instruction: Instruction, layout: Layout) -> int:
    """Return the bits of the value fields, and of X and the places of sources."""
    operands = {operand.slot: operand for operand in instruction.operands if operand.kind != Kind.NONE}
    remote = instruction.fiber.remote and not form.own_fiber_bits
    flags = flags_of(form)
    word = 1 << layout.remote if remote else 0
    for field in form.fields:
        operand = operands.pop(field.slot, None)
        if operand is None:
            if field.hidden is None:
                raise UserError(f"it needs the operand {field.slot}")
            word |= scatter(field.hidden, field.bits)
            continue
        word |= scatter(raw_value(field, operand), field.bits)
        if remote and operand.letter:
            word |= layout.write(operand.letter, operand.index, operand.place, flags)
    if operands:
        raise UserError(f"it does not take the operand {next(iter(operands))}")
    return word


@lru_cache(maxsize=1 << 14)
def flags_of(form: Form) -> Flags:
    """Return how a form uses the local flags."""
    slot_d = any(field.slot == "Re" and field.kind == Kind.GPR for field in form.fields)
    shown = form.mask
    for choice in form.choices:
        shown |= scatter(-1, choice.bits)
    return Flags(not slot_d, "A" if shown >> DESCRIPTOR_BIT & 1 else "")


def raw_value(field: Field, operand: Operand) -> int:
    """Return the bits of a field for an operand. Raises UserError where the value does not fit."""
    width = width_of(field.bits)
    if field.kind in (Kind.PREDICATE, Kind.UNIFORM_PREDICATE):
        index = PREDICATE_MASK - operand.index if field.complement else operand.index
        return index | (operand.negated << NEGATION_BIT if width > NEGATION_BIT else 0)
    if field.kind == Kind.GPR:
        return operand.index & (1 << width) - 1
    value, remainder = divmod(operand.index, field.scale)
    signed = field.kind in (Kind.SIGNED, Kind.TARGET)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    if remainder or not low <= value <= high:
        step = f", multiples of {field.scale}" if field.scale > 1 else ""
        raise UserError(
            f"{operand.index:#x} does not fit {field.slot}: {low * field.scale:#x} to {high * field.scale:#x}{step}"
        )
    return value & (1 << width) - 1


def runs_of(form: Form, instruction: Instruction) -> tuple[str | None, ...]:
    """Return the text of each run of a form in an instruction, None where the operand is left out."""
    operands = {operand.slot: operand for operand in instruction.operands}
    words = {operand.position: operand.suffix for operand in instruction.operands if operand.kind == Kind.NONE}
    texts: list[str | None] = []
    for run in form.runs:
        if run.role == "modifiers":
            texts.append("".join([form.name, *("." + name for name in instruction.modifiers)]))
        elif run.role == "word":
            texts.append(words.get(run.position))
        else:
            operand = operands.get(form.fields[run.field].slot)
            texts.append(None if operand is None else operand.prefix if run.role == "prefix" else operand.suffix)
    return tuple(texts)


@lru_cache(maxsize=1 << 16)
def match_choices(form: Form, texts: tuple[str | None, ...]) -> int | None:
    """Return the bits of all choices that give the runs these texts, None where there are none."""
    allowed = [(1 << (1 << width_of(choice.bits))) - 1 for choice in form.choices]
    steps = [(run.pieces, text) for run, text in zip(form.runs, texts, strict=True) if text is not None]
    found = next(_assign(form, steps, allowed), None)
    if found is None:
        return None
    word = 0
    for choice, values in zip(form.choices, found, strict=True):
        usual = gather(form.rest, choice.bits)
        value = usual if values >> usual & 1 else (values & -values).bit_length() - 1
        word |= scatter(value, choice.bits)
    return word & (1 << CONTROL_LOW) - 1  # the control field is told apart


Steps = list[tuple[tuple[str | ChoicePlace, ...], str]]


def _assign(form: Form, steps: Steps, allowed: list[int]) -> Iterator[list[int]]:
    """Yield for each choice the set of its values (as bits of an integer) that give the texts."""
    if not steps:
        yield allowed
        return
    (pieces, text), others = steps[0], steps[1:]
    for narrowed in _assign_run(form, pieces, text, _fitting(form, pieces, text), (0, 0), allowed):
        yield from _assign(form, others, narrowed)


def _fitting(form: Form, pieces: tuple[str | ChoicePlace, ...], text: str) -> set[tuple[int, int]]:
    """Return the places (piece, position) from which the rest of a run can still give the rest of its text."""
    fitting = {(len(pieces), len(text))}
    for number in range(len(pieces) - 1, -1, -1):
        piece = pieces[number]
        parts = [piece] if isinstance(piece, str) else values_by_text(form, piece)
        fitting |= {
            (number, at)
            for at in range(len(text) + 1)
            if any((number + 1, at + len(part)) in fitting and text.startswith(part, at) for part in parts)
        }
    return fitting


def _assign_run(
    form: Form,
    pieces: tuple[str | ChoicePlace, ...],
    text: str,
    fitting: set[tuple[int, int]],
    place: tuple[int, int],
    allowed: list[int],
) -> Iterator[list[int]]:
    number, at = place
    if place not in fitting:
        return
    if number == len(pieces):
        yield allowed
        return
    piece = pieces[number]
    if isinstance(piece, str):
        yield from _assign_run(form, pieces, text, fitting, (number + 1, at + len(piece)), allowed)
        return
    for part, values in values_by_text(form, piece).items():
        after = number + 1, at + len(part)
        if after in fitting and values & allowed[piece.choice] and text.startswith(part, at):
            narrowed = list(allowed)
            narrowed[piece.choice] &= values
            yield from _assign_run(form, pieces, text, fitting, after, narrowed)


@lru_cache(maxsize=1 << 16)
def values_by_text(form: Form, piece: ChoicePlace) -> dict[str, int]:
    """Return for each text of a choice the set of values that print it, longest text first."""
    sets: dict[str, int] = {}
    for value, text in enumerate(form.choices[piece.choice].texts[piece.place]):
        if text is not None:
            sets[text] = sets.get(text, 0) | 1 << value
    return dict(sorted(sets.items(), key=lambda pair: -len(pair[0])))
