"""What a program may do to the full and empty bits of a register number, whatever the subpartition: `BitUses`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.verify_flow import reachable
from heddle.ir.warp import RZ, Register, WarpProgram
from heddle.ir.warp_fiber import SUBPARTITIONS, TENSOR
from heddle.machine.spec import Machine
from heddle.sim.core import layout_fiber as f

MATRIX_UNITS = (Unit.WGMMA, Unit.WEFT_MMA)


@dataclass(frozen=True, slots=True)
class BitUses:
    """Sets of register numbers."""

    elsewhere: frozenset[int]  # named with a subpartition, and tested
    full: frozenset[int]  # some instruction may make them full
    shared: frozenset[int]  # E is not changed by issues and write-backs in their own subpartition alone
    common: frozenset[int]  # more than one weft of a subpartition names them, or one of another does


def numbers_of(register: Register | None, base: int) -> range:
    """Return the numbers of a group of registers (`core.layout_fiber`); none for the zero register."""
    if register is None or (register.place is None and register.index == RZ):
        return range(0)
    first = register.index + {None: base, TENSOR: f.TENSOR_FIRST}.get(register.place, 0)
    return range(first, first + register.count)


def is_matrix(op: str) -> bool:
    """Tell whether an instruction accumulates."""
    return op == "HMMA" or OPCODES[op].unit in MATRIX_UNITS


def bit_uses(program: WarpProgram, machine: Machine, base: dict[int, int]) -> BitUses:
    """Look through a program of mode fiber; `base`: of the roles that reach each instruction."""
    return BitUses(
        elsewhere=frozenset(_named_from_elsewhere(program)),
        full=frozenset(_made_full(program, machine, base)),
        shared=frozenset(_shared(program, base)),
        common=frozenset(_common(program)),
    )


def _named_from_elsewhere(program: WarpProgram) -> Iterator[int]:
    for instruction in program.instructions:
        if OPCODES[instruction.op].unit is not Unit.BUSY_BIT:
            for source in instruction.src:
                if source.place is not None and source.place >= 0:
                    yield from numbers_of(source, 0)


def _common(program: WarpProgram) -> Iterator[int]:
    """Yield registers that two roles name, a role with two wefts in a subpartition, or another subpartition."""
    yield from _named_from_elsewhere(program)
    owners: dict[int, str] = {}
    for role in program.roles:
        several = role.warps > SUBPARTITIONS
        for pc in reachable(program, role):
            instruction = program.instructions[pc]
            for register in (instruction.dst, *instruction.src):
                for number in numbers_of(register, role.base):
                    if several or owners.setdefault(number, role.name) != role.name:
                        yield number


def _made_full(program: WarpProgram, machine: Machine, base: dict[int, int]) -> Iterator[int]:
    if machine.busy_bits == "paper":  # every instruction fills its sources
        yield from range(f.BIT_WORDS << 6)
    for pc, instruction in enumerate(program.instructions):
        before = program.instructions[pc - 1].bind if pc else None
        if before is not None and before.hold:
            yield from numbers_of(instruction.dst, base.get(pc, 0))
        if instruction.bit == "full" and instruction.set_bit:
            yield from numbers_of(instruction.src[0], base.get(pc, 0))


def _shared(program: WarpProgram, base: dict[int, int]) -> Iterator[int]:
    """Yield registers that wefts of other subpartitions name, or that a bind or DEPBAR.BIT empties."""
    yield from range(f.TENSOR_FIRST, f.BIT_WORDS << 6)
    yield from _named_from_elsewhere(program)
    for pc, instruction in enumerate(program.instructions):
        before = program.instructions[pc - 1].bind if pc else None
        for slot in before.consume if before is not None else ():
            yield from numbers_of(instruction.src[slot], base.get(pc, 0))
        if OPCODES[instruction.op].unit is Unit.BUSY_BIT:
            yield from numbers_of(instruction.src[0], base.get(pc, 0))
        if instruction.all_scope and program.fiber is not None:
            yield from range(program.fiber.pool_first, program.fiber.pool_limit)
