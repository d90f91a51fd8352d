"""What a check of a warp program finds, and small helpers that checks share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, WarpProgram


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule that a program breaks; `pc` is None where it is not about one instruction."""

    message: str
    pc: int | None = None

    def text(self, program: WarpProgram) -> str:
        """Return the message with instruction and source line."""
        if self.pc is None:
            return self.message
        instruction = program.instructions[self.pc]
        place = f"pc {self.pc} ({instruction.op})"
        if instruction.source < len(program.sources):
            source = program.sources[instruction.source]
            place += f", {source.file}:{source.line} {source.operation}"
        return f"{place}: {self.message}"


def unit_of(instruction: Instruction) -> Unit | None:
    """Return the unit of an instruction, None for an unknown opcode."""
    opcode = OPCODES.get(instruction.op)
    return None if opcode is None else opcode.unit


def in_range(pc: int | None, program: WarpProgram) -> bool:
    """Tell whether an instruction is at `pc`."""
    return pc is not None and 0 <= pc < len(program.instructions)


def unknown(kind: str, name: str | None, allowed: Iterable[str], pc: int | None = None) -> Iterator[Problem]:
    """Yield a problem if `name` is not one of `allowed`."""
    names = sorted(allowed)
    if name not in names:
        yield Problem(f"unknown {kind} {name!r}; declared: {', '.join(names) or 'none'}", pc)


def duplicates(kind: str, names: Iterable[str]) -> Iterator[Problem]:
    """Yield a problem for each name that occurs twice."""
    given = list(names)
    for name in sorted({name for name in given if given.count(name) > 1}):
        yield Problem(f"{kind} {name!r} is declared {given.count(name)} times")
