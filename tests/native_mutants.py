"""Mutants of a compiled program of mode fiber: one hold, consume, wait, meeting or arrival less, or two exchanged.

A mutant is killed if the verifier of channels rejects it, or if a run shows it: it does not end, a hazard is reported,
numbers are wrong, or a datum is left over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from heddle import interp
from heddle.errors import UserError
from heddle.interp.check import CheckReport
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, WarpProgram
from heddle.kernels.registry import find_kernel
from heddle.machine import Machine
from heddle.passes.verify_channels import VerifyChannels
from heddle.study.requests import Request

Mutant = tuple[str, WarpProgram]
MEETINGS = (
    Unit.MBARRIER_WAIT,
    Unit.MBARRIER_ARRIVE,
    Unit.BARRIER_SYNC,
    Unit.BARRIER_ARRIVE,
    Unit.GROUP_WAIT,
)
"""What orders wefts beside bits: barriers, and waits for copies."""


def mutants(program: WarpProgram) -> Iterator[Mutant]:
    """Yield all mutants, each with what was done to it and where."""
    rows = program.instructions
    for pc, row in enumerate(rows):
        unit = OPCODES[row.op].unit
        if row.bind is not None:
            yield from _less(program, pc)
            if pc + 3 < len(rows) and rows[pc + 2].bind is not None and _token(program, pc + 1, pc + 3):
                order = (*range(pc), pc + 2, pc + 3, pc, pc + 1, *range(pc + 4, len(rows)))
                yield f"{_at(program, pc)}: exchanged with the next", _with(program, tuple(rows[i] for i in order))
        elif unit in MEETINGS:
            yield f"{_at(program, pc)}: no {row.op}", _replaced(program, pc, _nothing(row))


def _token(program: WarpProgram, one: int, other: int) -> bool:
    """Whether exchanging two bound instructions changes what a token says: one of them is a token, the other is not."""
    names = [program.sources[program.instructions[pc].source].operation for pc in (one, other)]
    return sum(name in ("TakeToken", "Fill") for name in names) == 1


def _less(program: WarpProgram, pc: int) -> Iterator[Mutant]:
    row = program.instructions[pc]
    bind = row.bind
    assert bind is not None
    if bind.hold:
        left = dataclasses.replace(row, bind=dataclasses.replace(bind, hold=False, readers=()))
        yield f"{_at(program, pc)}: no hold", _replaced(program, pc, left if bind.consume else _nothing(row))
    for slot in bind.consume:
        slots = tuple(s for s in bind.consume if s != slot)
        scoped = tuple(s for s in bind.scoped if s != slot)
        left = dataclasses.replace(row, bind=dataclasses.replace(bind, consume=slots, scoped=scoped))
        keeps = slots or bind.hold
        yield f"{_at(program, pc)}: no consume of slot {slot}", _replaced(program, pc, left if keeps else _nothing(row))


def _nothing(row: Instruction) -> Instruction:
    return Instruction(op="NOP", control=row.control, source=row.source, advance=row.advance)


def _replaced(program: WarpProgram, pc: int, row: Instruction) -> WarpProgram:
    rows = program.instructions
    return _with(program, (*rows[:pc], row, *rows[pc + 1 :]))


def _with(program: WarpProgram, rows: tuple[Instruction, ...]) -> WarpProgram:
    return dataclasses.replace(program, instructions=rows)


def _at(program: WarpProgram, pc: int) -> str:
    row = program.instructions[pc + 1 if program.instructions[pc].bind is not None else pc]
    return f"{pc} ({row.op}, line {program.sources[row.source].line})"


def rejected(program: WarpProgram, machine: Machine) -> bool:
    """Return whether the verifier of channels rejects a program."""
    try:
        VerifyChannels().run(program, machine)
    except UserError:
        return True
    return False


def killed_by(mutant: WarpProgram, machine: Machine, check: Callable[[WarpProgram], CheckReport]) -> str:
    """Return what finds a mutant: "verifier", "run" or "hazard" with two lines, "numbers"; nothing if it survives."""
    if rejected(mutant, machine):
        return "verifier"
    try:
        report = check(mutant)
    except UserError:
        return "run"
    if any(len(hazard.lines) > 1 for hazard in report.hazards):
        return "hazard"
    return "" if report.ok else "numbers"


def fate(mutant: WarpProgram, asked: Request) -> str:
    """Return what finds a mutant of the program of a request, as `killed_by` does."""
    names = {tensor.name for tensor in mutant.tensors}
    inputs, outputs = (
        {name: array for name, array in arrays.items() if name in names}
        for arrays in find_kernel(asked.kernel).reference(asked.params)
    )
    return killed_by(mutant, asked.machine, lambda m: interp.check(m, asked.machine, inputs, outputs))
