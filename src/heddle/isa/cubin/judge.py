"""NVIDIA's disassembler as the judge of a patched cubin: every instruction, label, call and line is still the same.

Instruction i of the original must be instruction i of the new code without its FIBER instructions, where every
reference to a label stands for the instruction that it leads to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from heddle.isa.cubin.cubin import Cubin, opcodes
from heddle.isa.cubin.listing import Listing, disassemble
from heddle.isa.cubin.returns import return_addresses
from heddle.isa.cubin.shadow import FIBER_OPCODES, shadow_cubin

_REFERENCE = re.compile(r"`\(([^()]*)\)|(\.L_x?_?\d+)")
_ADDRESS = re.compile(r"^(.*\bMOV\S* R\d+, (?:RZ, RZ, )?)0x[0-9a-f]+$")
_BASE = re.compile(r"^(.*\bBRX\S* R\d+) -?0x[0-9a-f]+")
NOP = "NOP"
MOST_SHOWN = 20


@dataclass
class Verdict:
    """What was compared, and what differs."""

    kernels: int = 0
    instructions: int = 0
    references: int = 0
    lines: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def add(self, other: Verdict) -> None:
        """Count another verdict in."""
        self.kernels += other.kernels
        self.instructions += other.instructions
        self.references += other.references
        self.lines += other.lines
        self.differences += other.differences


@dataclass(frozen=True, slots=True)
class _Side:
    """One listing, with the number that each instruction has among those of the original; -1 for an inserted one."""

    listing: Listing
    numbers: tuple[int, ...]
    everywhere: dict[str, tuple[str, int]]

    def identity(self, label: str, section: str) -> str | None:
        """Return what a label leads to: its section and its instruction's number; None where the label is not
        defined.
        """
        place = (section, self.listing.labels[label]) if label in self.listing.labels else self.everywhere.get(label)
        if place is None:
            return None
        if place[0] != section:
            return f"<{place[0]}>" if place[1] == 0 else f"<{place[0]}:{label}>"
        return f"<{self.number(place[1])}>"

    def number(self, index: int) -> int:
        """Return the number of an instruction; an inserted one stands for the one that follows it."""
        while index < len(self.numbers) and self.numbers[index] < 0:
            index += 1
        return self.numbers[index] if index < len(self.numbers) else -1


def judge(original: Cubin, patched: Cubin) -> Verdict:
    """Compare two cubins by NVIDIA's disassembler. Raises UserError where it refuses one."""
    before, after = disassemble(shadow_cubin(original)), disassemble(shadow_cubin(patched))
    verdict = Verdict(kernels=len(original.kernels))
    if before.keys() != after.keys():
        verdict.differences.append(f"sections of code: {sorted(before.keys() ^ after.keys())}")
        return verdict
    inserted = {patched.elf.sections[i].name: _inserted(patched, i) for i in patched.texts}
    everywhere = [{n: (s, i) for s, one in side.items() for n, i in one.labels.items()} for side in (before, after)]
    names = {one.name: index for index, one in enumerate(original.elf.sections)}
    for section, old in before.items():
        new, index = after[section], names[section]
        returns = return_addresses(original, index, original.words(index))
        old_side = _Side(old, tuple(range(len(old.texts))), everywhere[0])
        new_side = _Side(new, _numbers(len(new.texts), inserted.get(section, set())), everywhere[1])
        _compare_text(section, old_side, new_side, set(returns), verdict)
        _compare_labels(section, old_side, new_side, verdict)
        _compare_lines(section, old_side, new_side, verdict)
    return verdict


def _inserted(patched: Cubin, section: int) -> set[int]:
    codes = opcodes(patched.words(section))
    return set(np.flatnonzero(np.isin(codes, FIBER_OPCODES)).tolist())


def _numbers(count: int, inserted: set[int]) -> tuple[int, ...]:
    numbers, at = [], 0
    for index in range(count):
        numbers.append(-1 if index in inserted else at)
        at += index not in inserted
    return tuple(numbers)


def _compare_text(section: str, old: _Side, new: _Side, returns: set[int], verdict: Verdict) -> None:
    """Compare texts; return addresses and the bases of jump tables are numbers, which `compare` follows."""
    texts = [
        _resolved(text, new, section, verdict) for text, n in zip(new.listing.texts, new.numbers, strict=True) if n >= 0
    ]
    for index, text in enumerate(old.listing.texts):
        wanted = _resolved(text, old, section, None)
        if index >= len(texts):
            if wanted != NOP:
                verdict.differences.append(f"{section}, instruction {index}: {wanted} is gone")
        elif _comparable(wanted, index in returns) != _comparable(texts[index], index in returns):
            verdict.differences.append(f"{section}, instruction {index}: {wanted} became {texts[index]}")
    verdict.differences += [f"{section}: {text} is new" for text in texts[len(old.listing.texts) :] if text != NOP]
    verdict.instructions += len(old.listing.texts)


def _comparable(text: str, address: bool) -> str:
    text = _ADDRESS.sub(r"\1<address>", text) if address else text
    return _BASE.sub(r"\1", text).replace(".reuse", "")


def _resolved(text: str, side: _Side, section: str, verdict: Verdict | None) -> str:
    def replace(found: re.Match[str]) -> str:
        identity = side.identity(found[1] or found[2], section)
        if identity is not None and verdict is not None:
            verdict.references += 1
        return identity or found[0]

    return _REFERENCE.sub(replace, text)


def _compare_labels(section: str, old: _Side, new: _Side, verdict: Verdict) -> None:
    """Function labels (no local ones) must lead to the same instruction; a kernel begins with what was inserted."""
    for label, index in old.listing.labels.items():
        if label.startswith("."):
            continue
        if label not in new.listing.labels:
            verdict.differences.append(f"{section}: label {label} is gone")
            continue
        at = new.listing.labels[label]
        number = new.number(at)
        if (index == 0 and at != 0) or (index and number != old.numbers[index]):
            verdict.differences.append(f"{section}: {label} was at instruction {index}, is at {at}")


def _compare_lines(section: str, old: _Side, new: _Side, verdict: Verdict) -> None:
    """The source line of each instruction, where there is one, is the same."""
    lines = {number: line for number, line in zip(new.numbers, new.listing.lines, strict=True) if number >= 0}
    for index, line in enumerate(old.listing.lines):
        verdict.lines += bool(line)
        if index in lines and lines[index] != line and old.listing.texts[index] != NOP:
            verdict.differences.append(f"{section}, instruction {index}: line {line!r} became {lines[index]!r}")
