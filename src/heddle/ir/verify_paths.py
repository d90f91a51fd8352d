"""Checks of code in which fibers of a warp may have parted: they meet again, and do what each can do alone.

From a BRA.P to the BSYNC of each path a warp may run with a part of its fibers. There it may compute and access memory;
what all its fibers do together (channels, barriers, matrix products, shared loop counters) needs them all.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from heddle.ir.opcodes import Unit
from heddle.ir.verify_problem import Problem, in_range, unit_of
from heddle.ir.warp import Instruction, WarpProgram

PARTED_UNITS = (Unit.FIXED, Unit.VARIABLE, Unit.SHARED, Unit.GLOBAL, Unit.YIELD)
"""Units of instructions that a part of a warp's fibers can execute."""
WHOLE_WARP = ("HMMA", "LDSM", "STSM", "ELECT", "R2UR")
"""Opcodes of these units that read registers of all lanes."""


def path_problems(program: WarpProgram) -> Iterator[Problem]:
    """Yield what is wrong with the code between each BRA.P and the BSYNCs that end its paths."""
    parted: set[int] = set()
    for pc, instruction in enumerate(program.instructions):
        if unit_of(instruction) is not Unit.SPLIT:
            continue
        end = yield from _path(program, pc + 1, pc, parted)
        meeting = program.instructions[end].target if end is not None else None
        if meeting is None or meeting == instruction.target:
            continue  # the fibers that branch have no code of their own
        end = yield from _path(program, instruction.target, pc, parted)
        other = program.instructions[end].target if end is not None else meeting
        if other != meeting:
            yield Problem(f"the paths of BRA.P go on at different places: {meeting} and {other}", pc)
    for pc, instruction in enumerate(program.instructions):
        if unit_of(instruction) in (Unit.REJOIN, Unit.YIELD) and pc not in parted:
            yield Problem(f"{instruction.op} that no BRA.P leads to", pc)


def _path(
    program: WarpProgram, start: int | None, split: int, parted: set[int]
) -> Generator[Problem, None, int | None]:
    """Check one path up to its BSYNC; returns where that is."""
    pc = start
    while pc is not None and in_range(pc, program):
        instruction = program.instructions[pc]
        parted.add(pc)
        if unit_of(instruction) is Unit.REJOIN:
            return pc
        text = _together(instruction)
        if text is not None:
            yield Problem(text, pc)
            return None
        pc += 1
    yield Problem("a path of BRA.P runs past the end of the code; it needs a BSYNC", split)
    return None


def _together(instruction: Instruction) -> str | None:
    """Return what is wrong with an instruction where fibers may have parted."""
    unit = unit_of(instruction)
    if unit not in PARTED_UNITS or instruction.op in WHOLE_WARP:
        return f"{instruction.op} where fibers of a warp may have parted; it needs them all"
    if instruction.advance or instruction.by != "warp":
        return f"{instruction.op} steps rings or acts for the role where fibers of a warp may have parted"
    places = (instruction.dst, *instruction.src)
    if any(register is not None and register.place is not None for register in places):
        return f"{instruction.op} touches shared registers where fibers of a weft may have parted"
    return None
