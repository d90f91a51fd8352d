"""NVIDIA's life ranges (`nvdisasm -plr`) read as sets of registers, and control flow as its text has it."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path

from heddle.isa.instruction import Kind
from heddle.isa.liveness import Flow, registers
from heddle.isa.nvidia import run_program

KINDS = {"GPR": Kind.GPR, "PRED": Kind.PREDICATE, "UGPR": Kind.UNIFORM, "UPRED": Kind.UNIFORM_PREDICATE}
_SECTION = re.compile(r"^\t\.section\t([^,]+),")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;")
_LABEL = re.compile(r"^([.$_A-Za-z]\S*):")
_TARGETS = re.compile(r"`\(([^()]*)\)|(\.L_x_\d+)")
_BY_PREDICATE = re.compile(r"!?U?P\d")


@dataclass
class Ranges:
    """One section of code: texts, labels, and the registers that NVIDIA marks as read, written or live at each
    instruction.
    """

    texts: list[str] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    live: list[int] = field(default_factory=list)

    @property
    def shown(self) -> int:
        """The registers that have a column."""
        total = 0
        for one in self.live:
            total |= one
        return total


def life_ranges(path: Path) -> dict[str, Ranges]:
    """Return NVIDIA's life ranges of a cubin by section."""
    found: dict[str, Ranges] = {}
    current, names, columns = Ranges(), [], []
    for line in run_program("nvdisasm", ["-c", "-plr", "-lrm", "narrow", path]).splitlines():
        if section := _SECTION.match(line):
            current = found.setdefault(section[1], Ranges())
            continue
        if label := _LABEL.match(line):
            current.labels[label[1]] = len(current.texts)
            continue
        start = line.find("// |")
        if start < 0:
            continue
        marks, instruction = line[start + 3 :], _INSTRUCTION.match(line[:start])
        bars = [at for at, letter in enumerate(marks) if letter == "|"]
        if instruction:
            _add(current, re.sub(r"\s+", " ", instruction[1]), marks, names, columns)
        elif "#" in marks:
            columns = [_columns(marks, a, b) for a, b in itertools.pairwise(bars)]
        elif re.search("GPR|PRED", marks):
            names = [marks[a + 1 : b].strip() for a, b in itertools.pairwise(bars)]
    return {name: one for name, one in found.items() if one.texts}


def _columns(header: str, start: int, end: int) -> tuple[int, int]:
    """Return where the columns of one kind of register begin and end."""
    sign = header.index("#", start, end)
    first = re.compile(r"\d").search(header, sign, end)
    return (first.start() if first else end), end


def _add(ranges: Ranges, text: str, marks: str, names: list[str], columns: list[tuple[int, int]]) -> None:
    reads = writes = live = 0
    for name, (start, end) in zip(names, columns, strict=True):
        for number, mark in enumerate(marks[start:end]):
            if mark not in "^vx:":
                continue
            one = registers(KINDS[name], number)
            live |= one
            reads |= one if mark in "vx" else 0
            writes |= one if mark in "^x" else 0
    ranges.texts.append(text)
    ranges.reads.append(reads)
    ranges.writes.append(writes)
    ranges.live.append(live)


def flow_by_text(ranges: Ranges, exit_reads: int, return_reads: int) -> Flow:
    """Return the flow of a section by NVIDIA's own roles of registers and by the text of its branches."""
    reads, numbers, guards, successors, targets = list(ranges.reads), {}, [], [], {}
    for index, text in enumerate(ranges.texts):
        guard, _, rest = text.partition(" ") if text.startswith("@") else ("", "", text)
        name, _, operands = rest.partition(" ")
        predicate = guard.strip("@!")
        guards.append(1 + 2 * numbers.setdefault(predicate, len(numbers)) + ("!" in guard) if guard else 0)
        led = [ranges.labels[a or b] for a, b in _TARGETS.findall(rest) if (a or b) in ranges.labels]
        after = [index + 1] if index + 1 < len(ranges.texts) else []
        base, modifiers = name.split(".")[0], set(name.split(".")[1:])
        decided = bool(_BY_PREDICATE.search(operands.split("`")[0])) or bool(modifiers & {"DIV", "CONV", "ANY"})
        if base == "BRA" and led == [index]:
            reads[index] |= exit_reads
            after = []
        elif base == "BRA":
            after = led + (after if guard or decided else [])
            if guard and not decided:
                targets[index] = led[0]
        elif base == "BRX":
            after = led + (after if guard else [])
        elif base in ("EXIT", "RET"):
            reads[index] |= exit_reads if base == "EXIT" else return_reads & ranges.shown
            after = after if guard or (base == "EXIT" and decided) else []
        successors.append(after)
    return Flow(reads, ranges.writes, guards, successors, targets, frozenset(ranges.labels.values()))
