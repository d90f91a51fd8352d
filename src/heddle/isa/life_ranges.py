"""NVIDIA's life ranges (`nvdisasm -plr`), read: the registers that each instruction reads, writes or leaves live.

For each kind of register (GPR, PRED, UGPR, UPRED) there is a table beside the code with a column a register: `^` is
written, `v` read, `x` both, `:` lives through. nvdisasm leaves out instructions that nothing leads to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from heddle.errors import UserError
from heddle.isa.instruction import Kind
from heddle.isa.liveness import registers
from heddle.isa.nvidia import run_program
from heddle.isa.words import WORD_BYTES

KINDS = {"GPR": Kind.GPR, "PRED": Kind.PREDICATE, "UGPR": Kind.UNIFORM, "UPRED": Kind.UNIFORM_PREDICATE}
READ, WRITTEN, LIVE = "vx", "^x", "^vx:"
_SECTION = re.compile(r"^\t\.section\t([^,\s]+),")
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/")
_DIGIT = re.compile(r"\d")
_START = "// |"


@dataclass
class Ranges:
    """One section of code: the number of each instruction that is listed, and sets of registers (`liveness`) that
    are read, written and live at it.
    """

    numbers: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    live: list[int] = field(default_factory=list)

    @property
    def shown(self) -> int:
        """The registers that have a column: those that the section names."""
        total = 0
        for one in self.live:
            total |= one
        return total


@dataclass
class _Tables:
    """The tables beside the code: their names, and where the columns of each begin and end."""

    names: list[str] = field(default_factory=list)
    columns: list[tuple[int, int]] = field(default_factory=list)

    def header(self, marks: str) -> None:
        """Take in a line of the header: the names, or the last line of numbers, which begins with #."""
        bars = [at for at, letter in enumerate(marks) if letter == "|"]
        if "#" in marks:
            self.columns = [_columns(marks, a, b) for a, b in pairwise(bars)]
        elif "GPR" in marks or "PRED" in marks:
            self.names = [marks[a + 1 : b].strip() for a, b in pairwise(bars)]

    def sets(self, marks: str) -> tuple[int, int, int]:
        """Return the registers that a line marks as read, written and live."""
        if len(self.names) != len(self.columns):
            raise UserError("nvdisasm's life ranges have no header")
        reads = writes = live = 0
        for name, (start, end) in zip(self.names, self.columns, strict=True):
            for number, mark in enumerate(marks[start:end]):
                one = registers(KINDS[name], number)
                live |= one if mark in LIVE else 0
                reads |= one if mark in READ else 0
                writes |= one if mark in WRITTEN else 0
        return reads, writes, live


def life_ranges(path: Path) -> dict[str, Ranges]:
    """Return NVIDIA's life ranges of a cubin's file by section. Raises UserError where nvdisasm refuses it."""
    return parse_life_ranges(run_program("nvdisasm", ["-c", "-plr", "-lrm", "narrow", path]))


def parse_life_ranges(text: str) -> dict[str, Ranges]:
    """Return the sections of a listing made with `nvdisasm -c -plr -lrm narrow`. Raises UserError."""
    found: dict[str, Ranges] = {}
    current, tables = Ranges(), _Tables()
    for line in text.splitlines():
        if section := _SECTION.match(line):
            current = found.setdefault(section[1], Ranges())
            continue
        start = line.find(_START)
        if start < 0:
            continue
        marks = line[start + len(_START) - 1 :]
        if instruction := _INSTRUCTION.match(line):
            current.numbers.append(int(instruction[1], 16) // WORD_BYTES)
            for kept, one in zip((current.reads, current.writes, current.live), tables.sets(marks), strict=True):
                kept.append(one)
        else:
            tables.header(marks)
    return {name: one for name, one in found.items() if one.numbers}


def _columns(header: str, start: int, end: int) -> tuple[int, int]:
    """Return where the columns of one kind of register begin and end."""
    first = _DIGIT.search(header, header.index("#", start, end), end)
    return (first.start() if first else end), end
