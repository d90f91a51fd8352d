"""A warp program as words and a note: registers, operands, control and branches in words, the rest in the note."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from heddle.errors import InternalError, UserError
from heddle.ir.verify_flow import reachable
from heddle.ir.warp import Control, Instruction, WarpProgram
from heddle.isa.emission import control, fiber, flow, places
from heddle.isa.emission.choose import choose_form, signature
from heddle.isa.emission.form import Form, Forms, forms_of
from heddle.isa.emission.operands import put_operands
from heddle.isa.layouts import layout_named
from heddle.isa.words import Words, from_ints

BIND, BIT = "DEPBAR.BIND", "DEPBAR.BIT"
COMMIT = "WARPGROUP.COMMIT"
SET_REGISTERS = "USETMAXREG"
PLAIN_FIELDS = ("pending", "barrier_id", "warps", "level", "fibers", "all_scope", "group")
"""Fields of forms that rows have under the same name."""
T = TypeVar("T")
COMMITS, COMMITS_NOT = 0, 7
"""Of the last wgmma of a group and of the others (gsb0 or none)."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What the words of a program depend on beside their row."""

    program: WarpProgram
    forms: tuple[Form, ...]
    windows: tuple[places.Window, ...]
    meetings: dict[int, int]
    registers: dict[int, int]


def program_words(program: WarpProgram, layout: str = "heddle") -> Words:
    """Return the words of a program, one a row.

    Raises UserError or UnsupportedError, with the row, for what has no encoding.
    """
    table = forms_of(program.architecture)
    windows = row_windows(program, layout)
    registers = _set_registers(program)
    share = even_share(program)

    known: dict[tuple[object, ...], Form] = {}

    def choose(pc: int) -> Form:
        row, allocates = program.instructions[pc], registers.get(pc, 0) > share
        key = signature(row, allocates)
        if key not in known:
            known[key] = choose_form(row, table, allocates)
        return known[key]

    forms = tuple(_at(program, pc, choose) for pc in range(len(program.instructions)))
    context = _Context(program, forms, windows, flow.meetings(program.instructions), registers)
    words = [_at(program, pc, lambda pc: _word(context, pc)) for pc in range(len(forms))]
    _check_forms(program, table, words, forms)
    return from_ints(words)


def row_windows(program: WarpProgram, layout: str) -> tuple[places.Window, ...]:
    """Return what the registers of each row are relative to."""
    pool = program.fiber if program.mode == "fiber" else None
    named = layout_named(layout)
    return tuple(places.Window(base, pool, named) for base in flow.bases(program))


def even_share(program: WarpProgram) -> int:
    """Return the registers a thread that each warp has at launch: those of all roles, divided evenly."""
    warps = program.warps_per_cta
    return sum(role.warps * role.registers_per_thread for role in program.roles) // warps if warps else 0


def _set_registers(program: WarpProgram) -> dict[int, int]:
    """Return the registers that each setmaxnreg asks for: those of the role that runs it."""
    found: dict[int, int] = {}
    for role in program.roles:
        for pc in reachable(program, role):
            if program.instructions[pc].op == SET_REGISTERS:
                found[pc] = role.registers_per_thread
    return found


def _at(program: WarpProgram, pc: int, step: Callable[[int], T]) -> T:
    """Run a step for a row; an error says which row it is."""
    try:
        return step(pc)
    except UserError as error:
        raise UserError(f"instruction {pc} ({program.instructions[pc].op}): {error.message}", hint=error.hint) from None


def said_control(row: Instruction, form: Form) -> Control:
    """Return what the word says of the control field: no counter for the write-back where the form has none."""
    return row.control if form.write_barrier else replace(row.control, write_barrier=None)


def _word(context: _Context, pc: int) -> int:
    row, form, window = context.program.instructions[pc], context.forms[pc], context.windows[pc]
    word = control.put_guard(form.word, row)
    word = control.put_control(word, said_control(row, form))
    if row.op == BIT:
        return fiber.put_bit(word, form, row, window)
    if row.op == BIND:
        return _bind(context, pc, word)
    word = put_operands(word, row, form, window)
    return _fields(context, pc, word)


def _bind(context: _Context, pc: int, word: int) -> int:
    row = context.program.instructions[pc]
    if row.bind is None or pc + 1 == len(context.forms):
        raise UserError("a BIND binds something to the instruction after it")
    return fiber.put_bind(word, context.forms[pc], row.bind, context.forms[pc + 1])


def _fields(context: _Context, pc: int, word: int) -> int:
    row, form = context.program.instructions[pc], context.forms[pc]
    for name, field in form.fields.items():
        if name in PLAIN_FIELDS:
            word = field.put(word, int(getattr(row, name)), name)
        elif name == "n":
            assert row.shape is not None
            word = field.put(word, row.shape[1], "columns of the product")
        elif name == "target" and row.target is not None:
            word = flow.put_target(word, field, pc, row.target)
        elif name == "meeting":
            word = flow.put_target(word, field, pc, context.meetings.get(pc, pc + 1))
        elif name == "registers":
            word = field.put(word, context.registers.get(pc, 0), name)
        elif name == "commits":
            follows = pc + 1 < len(context.forms) and context.program.instructions[pc + 1].op == COMMIT
            word = field.put_raw(word, COMMITS if follows else COMMITS_NOT)
    return word


def _check_forms(program: WarpProgram, table: Forms, words: list[int], forms: tuple[Form, ...]) -> None:
    """Raise if a word reads as another form: then a register happens to look like what another form fixes."""
    for pc, (word, form) in enumerate(zip(words, forms, strict=True)):
        found = table.find(word)
        if found is None:
            raise InternalError(f"instruction {pc}: the word of {form.text} has no form")
        if found is not form:
            raise UserError(
                f"instruction {pc} ({program.instructions[pc].op}): its word cannot be told from {found.text}",
                hint="RZ as a source means that the operand is none",
            )
