"""Control flow of a section of code: what may follow each instruction, and what calls and returns read and write."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.errors import UserError
from heddle.isa.codec import Decoded, decode
from heddle.isa.cubin import attributes
from heddle.isa.cubin.branches import branches
from heddle.isa.cubin.cubin import Cubin
from heddle.isa.cubin.relink import indirect_targets
from heddle.isa.cubin.resources import kernel_attributes
from heddle.isa.instruction import Instruction, Kind
from heddle.isa.liveness import Convention, Flow, guards_of, register_sets, registers
from heddle.isa.words import WORD_BYTES

ENDS, JUMPS, RETURNS, CALLS, INDIRECT = ("EXIT", "KILL"), ("BRA", "JMP"), ("RET", "RTT"), ("CALL",), ("BRX", "JMX")
CONDITIONAL = frozenset(("DIV", "CONV", "ANY", "ALL"))
"""Modifiers of branches that are taken or not, without a guard."""
STACK_POINTER = registers(Kind.GPR, 1)

_CALL_WRITES = (
    registers(Kind.GPR, 0)
    | registers(Kind.GPR, 3, 13)
    | registers(Kind.PREDICATE, 0, 7)
    | registers(Kind.UNIFORM, 4, 32)
)
NVIDIA = Convention(
    guarded_ends=True,
    call_reads=registers(Kind.GPR, 0, 2),
    call_writes=_CALL_WRITES,
    return_reads=registers(Kind.GPR, 1, 2) | registers(Kind.GPR, 16, 239),
    exit_reads=STACK_POINTER,
)
"""What nvdisasm -plr assumes: every function keeps to CUDA's calling convention, also those inside one kernel."""
EXACT = Convention(exit_reads=STACK_POINTER)
"""Calls are followed into the function and returns to every caller of it, so that only real reads count."""


def flow_of(cubin: Cubin, section: int, convention: Convention) -> tuple[Decoded, Flow]:
    """Return a section of code decoded, and its flow. Raises UserError where a jump's targets are not known."""
    decoded = decode(cubin.words(section), cubin.architecture)
    reads, writes = register_sets(decoded.uses()), register_sets(decoded.definitions())
    found = branches(decoded.words, cubin.architecture)
    targets = dict(zip(found.index.tolist(), (found.target // WORD_BYTES).tolist(), strict=True))
    tables = indirect_targets(cubin, cubin.elf.sections[section].name)
    names = [decoded.name(index) for index in range(len(decoded))]
    returns = _return_sites(cubin, section, names, targets) if convention is EXACT else {}
    successors: list[Sequence[int]] = []
    for index, name in enumerate(names):
        after = [index + 1] if index + 1 < len(names) else []
        if name in ENDS or name in JUMPS or name in RETURNS or name in CALLS or name in INDIRECT:
            if name in ENDS or (name in JUMPS and targets.get(index) == index):
                reads[index] |= convention.exit_reads
            elif name in RETURNS:
                reads[index] |= convention.return_reads
            elif name in CALLS and convention.call_writes:
                reads[index] |= convention.call_reads
                writes[index] |= convention.call_writes
            led = _led_to(cubin, section, index, name or "", targets, tables, returns, convention)
            may_pass = _may_pass(decoded[index]) or (name in CALLS and not led)
            after = [*led, *(after if may_pass and targets.get(index) != index else [])]
        successors.append([one for one in dict.fromkeys(after) if 0 <= one < len(names)])
    plain = {
        i: targets[i] for i, name in enumerate(names) if name in JUMPS and i in targets and not _decided(decoded[i])
    }
    return decoded, Flow(reads, writes, guards_of(decoded), successors, plain, _starts(cubin, section))


def _starts(cubin: Cubin, section: int) -> frozenset[int]:
    """Return the instructions that attributes list: nvdisasm puts labels there, which begin blocks."""
    found: set[int] = set()
    for kernel in cubin.kernels:
        for one in kernel_attributes(cubin, kernel) if kernel.section == section else ():
            if one.code in attributes.LISTS:
                found.update(number // WORD_BYTES for number in one.numbers())
    return frozenset(found)


def _may_pass(instruction: Instruction) -> bool:
    """Return whether the instruction after a jump may follow it: a guard, a predicate, or a modifier decides."""
    return instruction.guard.index != 7 or instruction.guard.negated or _decided(instruction)


def _decided(instruction: Instruction) -> bool:
    """Return whether something else than the guard decides about a branch."""
    predicates = (Kind.PREDICATE, Kind.UNIFORM_PREDICATE)
    by_operand = any(one.kind in predicates and (one.index != 7 or one.negated) for one in instruction.operands)
    return by_operand or bool(CONDITIONAL & set(instruction.modifiers))


def _led_to(
    cubin: Cubin,
    section: int,
    index: int,
    name: str,
    targets: dict[int, int],
    tables: dict[int, tuple[int, ...]],
    returns: dict[int, list[int]],
    convention: Convention,
) -> list[int]:
    if name in ENDS:
        return []
    if name in RETURNS:
        return returns.get(index, [])
    if name in INDIRECT:
        if index not in tables:
            what = f"{cubin.elf.sections[section].name}, {index * WORD_BYTES:#x}"
            raise UserError(f"{cubin.what}: nothing says where the jump at {what} leads")
        return [target // WORD_BYTES for target in tables[index]]
    if name in CALLS:
        return [targets[index]] if convention is EXACT and index in targets else []
    return [targets[index]] if targets.get(index, index) != index else []


def _return_sites(cubin: Cubin, section: int, names: list[str | None], targets: dict[int, int]) -> dict[int, list[int]]:
    """Return for each RET the instructions after the calls of its function."""
    callers: dict[int, list[int]] = {}
    for index, name in enumerate(names):
        if name in CALLS and index in targets:
            callers.setdefault(targets[index], []).append(index + 1)
    inner = sorted(f.start // WORD_BYTES for f in cubin.functions if f.section == section)
    found: dict[int, list[int]] = {}
    for index, name in enumerate(names):
        if name in RETURNS:
            start = max((one for one in inner if one <= index), default=0)
            found[index] = callers.get(start, [])
    return found
