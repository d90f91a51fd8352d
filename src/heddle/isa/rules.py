"""What FIBER fields may say: rules that no encoding can hold, checked on instructions with remote operands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from heddle.errors import UserError
from heddle.isa.assemble import flags_of
from heddle.isa.form import Form
from heddle.isa.instruction import LETTERS, Instruction, Kind, Operand
from heddle.isa.layouts import DESCRIPTOR_BIT, RZ, Layout, layout_named
from heddle.isa.table import Table, load_table

REGISTERS = 512  # of a subpartition
WINDOW = 256  # a group of registers does not cross it: the last register of each is no register, or reached by none
_REUSE_BIT = {"A": 0, "B": 1, "C": 2, "D": 3}


def check(instructions: Iterable[Instruction], architecture: str, layout: str = "heddle") -> None:
    """Raise UserError for the first instruction that breaks a rule, with its number and all that is wrong with it."""
    table, names = load_table(architecture), layout_named(layout)
    for number, instruction in enumerate(instructions):
        if problems := list(violations(instruction, table, names)):
            raise UserError(f"instruction {number}, {instruction.mnemonic}: {'; '.join(problems)}")


def violations(instruction: Instruction, table: Table, layout: Layout) -> Iterator[str]:
    """Yield what is wrong with the FIBER fields of an instruction."""
    for operand in instruction.operands:
        if operand.place is not None and not instruction.fiber.remote:
            yield f"{_name(operand)} has a place, but the instruction has no remote operands (fiber.remote is not set)"
        if operand.place is not None and not operand.letter:
            yield from _no_place(operand)
    if not instruction.fiber.remote or instruction.name is None:
        return
    form = _form(instruction, table)
    for operand in instruction.operands:
        if operand.letter:
            yield from _source(operand, instruction, layout, form)
        if operand.kind == Kind.GPR:
            yield from _group(operand)


def _form(instruction: Instruction, table: Table) -> Form | None:
    slots = {operand.slot for operand in instruction.operands if operand.kind != Kind.NONE}
    forms = [table.forms[number] for number in table.by_code.get(instruction.opcode, ())]
    return next((form for form in forms if slots <= {field.slot for field in form.fields}), None)


def _no_place(operand: Operand) -> Iterator[str]:
    if operand.kind != Kind.GPR:
        yield f"{operand.slot} is no vector register and has no place"
    elif operand.definition and operand.slot in LETTERS:
        yield f"slot {LETTERS[operand.slot]} is a second destination here: it is local; copy from it with a MOV"
    elif operand.definition:
        yield f"{_name(operand)} is a destination: it is local; write locally and let the readers be remote"
    else:
        yield f"the layout has no bits for a place of a fifth source (bits {operand.slot}): copy it with a MOV before"


def _source(operand: Operand, instruction: Instruction, layout: Layout, form: Form | None) -> Iterator[str]:
    name, letter = _name(operand), operand.letter
    if operand.place is None and operand.index != RZ:
        yield f"{name} needs a place, as the instruction has remote operands: {name}@own or {name}@0 to {name}@3"
        return
    if operand.index == RZ and operand.place is not None:
        yield "register 255 cannot be named: its code stands for RZ"
    if operand.index >= REGISTERS:
        yield f"{name}: a subpartition has registers 0 to {REGISTERS - 1}"
    if operand.place == "own" and letter not in layout.local:
        yield f"{name}@own: layout {layout.name} cannot say `own`{' of slot D' if layout.local else ''}"
    elif operand.place != "own" and operand.index != RZ and instruction.control.reuse >> _REUSE_BIT[letter] & 1:
        yield f"{name}: the operand cache (.reuse) holds no register of another subpartition"
    if form is not None and letter in flags_of(form).always_own and operand.place != "own":
        yield f"{name}: bit {DESCRIPTOR_BIT} is the descriptor flag here, so slot A is always local: write {name}@own"


def _group(operand: Operand) -> Iterator[str]:
    if operand.index == RZ or operand.count <= 1:
        return
    aligned = min(operand.count & -operand.count, 4)
    name = f"{_name(operand)} to R{operand.index + operand.count - 1}"
    if operand.index % aligned:
        yield f"{name}: a group of {operand.count} registers begins at a multiple of {aligned}"
    last = operand.index + operand.count - 1
    if operand.index // WINDOW != last // WINDOW or operand.index <= RZ <= last:
        yield f"{name}: a group of registers does not contain register {RZ} and does not cross it"


def _name(operand: Operand) -> str:
    return f"R{operand.index}" if operand.kind == Kind.GPR else operand.slot
