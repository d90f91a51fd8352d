"""Control flow of a section of code: what may follow each instruction, and what calls and returns read and write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.isa.codec import Decoded, decode
from heddle.isa.cubin import attributes
from heddle.isa.cubin.branches import branches
from heddle.isa.cubin.cubin import Cubin, opcodes
from heddle.isa.cubin.relink import indirect_targets
from heddle.isa.cubin.resources import kernel_attributes, resources
from heddle.isa.instruction import Kind
from heddle.isa.liveness import SIZES, Convention, Flow, guards_of, register_sets, registers
from heddle.isa.words import WORD_BYTES, get

EXIT, BRANCH, BRANCH_UNIFORM, BRANCH_DIVERGED, RETURN, INDIRECT = 0x94D, 0x947, 0x1547, 0x1947, 0x950, 0x949
MEETING = 0x945  # BSSY: its target is where paths meet again
JUMPS = (BRANCH, BRANCH_UNIFORM, BRANCH_DIVERGED)
CALLS = (0x943, 0x944, 0x343, 0x344)
"""CALL.ABS and CALL.REL, by immediate and by register."""
CALL_DIRECT = 0x944
ALWAYS = 7
STACK_POINTER = registers(Kind.GPR, 1)

_CALL_WRITES = (
    registers(Kind.GPR, 0)
    | registers(Kind.GPR, 3, 13)
    | registers(Kind.PREDICATE, 0, 7)
    | registers(Kind.UNIFORM, 4, 32)
    | registers(Kind.UNIFORM_PREDICATE, 0, 7)
)
_KEPT = registers(Kind.GPR, 16, 16) | sum(registers(Kind.GPR, first, 4) for first in range(36, 252, 8))
NVIDIA = Convention(
    guarded_ends=True,
    call_reads=registers(Kind.GPR, 0, 2),
    call_writes=_CALL_WRITES,
    return_reads=registers(Kind.GPR, 1, 2) | _KEPT,
    exit_reads=STACK_POINTER,
)
"""What nvdisasm -plr assumes: every function keeps to CUDA's calling convention, also those inside one kernel."""
EXACT = Convention(exit_reads=STACK_POINTER)
"""Calls are followed into the function and returns to every caller of it, so that only real reads count."""


def flow_of(cubin: Cubin, section: int, convention: Convention) -> tuple[Decoded, Flow]:
    """Return a section of code decoded, and its flow. Raises UserError where a jump's targets are not known.

    An instruction that the opcode table does not know is taken to read every register, so that nothing is missed.
    """
    decoded = decode(cubin.words(section), cubin.architecture)
    reads, writes = register_sets(decoded.uses()), register_sets(decoded.definitions())
    if (raw := raw_instructions(decoded)).size:
        every = reduce(or_, (*reads, *writes), _allocated(cubin, section))
        for index in raw.tolist():
            reads[index] = every
    found = branches(decoded.words, cubin.architecture)
    targets = dict(zip(found.index.tolist(), (found.target // WORD_BYTES).tolist(), strict=True))
    codes: list[int] = opcodes(decoded.words).tolist()
    guards, decided = guards_of(decoded), _decided(decoded)
    leads = _Leads(cubin, section, codes, targets, convention)
    successors: list[Sequence[int]] = [[index + 1] for index in range(len(codes))]
    plain = {}
    for index in np.flatnonzero(np.isin(codes, (EXIT, RETURN, INDIRECT, *JUMPS, *CALLS))).tolist():
        code, led = codes[index], leads.of(index)
        ends = code == EXIT or (code in JUMPS and targets[index] == index)
        if ends:
            reads[index] |= convention.exit_reads
        elif code == RETURN:
            reads[index] |= convention.return_reads
        elif code in CALLS:
            reads[index] |= convention.call_reads
            writes[index] |= convention.call_writes
        elif code in JUMPS and not decided[index]:
            plain[index] = targets[index]
        passes = bool(guards[index]) or decided[index] or (code in CALLS and not led)
        successors[index] = [*led, index + 1] if passes else led
    meetings = {target for index, target in targets.items() if codes[index] == MEETING}
    inside = [[one for one in dict.fromkeys(after) if 0 <= one < len(codes)] for after in successors]
    return decoded, Flow(reads, writes, guards, inside, plain, _starts(cubin, section) | meetings)


def raw_instructions(decoded: Decoded) -> NDArray[np.intp]:
    """Return the instructions that the opcode table does not know."""
    return np.flatnonzero(decoded.form < 0)


def _allocated(cubin: Cubin, section: int) -> int:
    """Return the vector registers that the kernels of a section are given."""
    given = (resources(cubin, kernel).registers or 0 for kernel in cubin.kernels if kernel.section == section)
    return registers(Kind.GPR, 0, min(max(given, default=0), SIZES[Kind.GPR]))


def _decided(decoded: Decoded) -> list[bool]:
    """Return whether a predicate, votes or divergence decide about a branch or an exit, beside the guard."""
    codes = opcodes(decoded.words)
    predicate = get(decoded.words, 90, 87) != ALWAYS
    votes = get(decoded.words, 33, 32) != 0
    plain = np.isin(codes, (BRANCH, EXIT)) & (predicate | ((codes == BRANCH) & votes))
    uniform = (codes == BRANCH_UNIFORM) & (get(decoded.words, 27, 24) != ALWAYS)
    found: list[bool] = (plain | uniform | (codes == BRANCH_DIVERGED)).tolist()
    return found


def _starts(cubin: Cubin, section: int) -> frozenset[int]:
    """Return the instructions that attributes name: nvdisasm puts labels there, which begin regions."""
    found: set[int] = set()
    for kernel in cubin.kernels:
        for one in kernel_attributes(cubin, kernel) if kernel.section == section else ():
            if attributes.holds_offsets(one):
                numbers = one.numbers()
                found.update(numbers[at] // WORD_BYTES for at in attributes.offset_positions(one))
    return frozenset(found)


class _Leads:
    """Where jumps, calls and returns of a section lead."""

    def __init__(
        self, cubin: Cubin, section: int, codes: list[int], targets: dict[int, int], convention: Convention
    ) -> None:
        self.cubin, self.name, self.codes, self.targets = cubin, cubin.elf.sections[section].name, codes, targets
        self.follows = convention is EXACT
        self.tables = indirect_targets(cubin, self.name)
        self.functions = sorted(one.start // WORD_BYTES for one in cubin.functions if one.section == section)
        self.callers: dict[int, list[int]] = {}
        for index, target in targets.items():
            if codes[index] in CALLS:
                self.callers.setdefault(target, []).append(index + 1)

    def of(self, index: int) -> list[int]:
        """Return the instructions that one instruction leads to, but for the next one. Raises UserError."""
        code = self.codes[index]
        if code in JUMPS:
            return [self.targets[index]] if self.targets[index] != index else []
        if code == INDIRECT:
            if index not in self.tables:
                what = f"{self.cubin.what}: {self.name}, {index * WORD_BYTES:#x}"
                raise UserError(f"{what}: nothing says where this jump leads")
            return [target // WORD_BYTES for target in self.tables[index]]
        if not self.follows or code == EXIT:
            return []
        if code == RETURN:
            start = max((one for one in self.functions if one <= index), default=0)
            return self.callers.get(start, [])
        direct = code == CALL_DIRECT and index in self.targets
        return [self.targets[index]] if direct else []
