"""Checks of what FIBER adds to a warp program (docs/reference/fiber.md): modes, SETFIBER, bits, features.

Registers and what a bind names are in `verify_fiber_registers`, matrix instructions in `verify_fiber_matrix`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from heddle.ir.opcodes import Unit
from heddle.ir.verify_fiber_matrix import matrix_family_problems, weft_mma_problems
from heddle.ir.verify_fiber_registers import register_problems
from heddle.ir.verify_problem import Problem, unit_of
from heddle.ir.warp import Instruction, WarpProgram
from heddle.ir.warp_fiber import B_SLOT, BUSY_BIT_GROUPS, FIBERS, SUBPARTITIONS, TENSOR, WINDOW, Bind, wefts_of

MODES = ("simt", "cuda-native", "fiber")
FIBER_UNITS = (Unit.SET_FIBER_NUM, Unit.BIND, Unit.BUSY_BIT, Unit.WEFT_MMA)
BIT_UNITS = (Unit.BIND, Unit.BUSY_BIT, Unit.WEFT_MMA)


class Features(Protocol):
    """What a machine offers; `heddle.machine.Machine` has these fields."""

    @property
    def name(self) -> str: ...
    @property
    def dynamic_parallelism(self) -> bool: ...
    @property
    def fine_scheduling(self) -> bool: ...
    @property
    def register_sharing(self) -> bool: ...
    @property
    def sharing_scope(self) -> str: ...
    @property
    def busy_bits(self) -> str: ...
    @property
    def subpartitions(self) -> int: ...
    @property
    def vector_registers(self) -> int: ...
    @property
    def max_wefts_per_subpartition(self) -> int: ...


def fiber_problems(program: WarpProgram) -> Iterator[Problem]:
    """Yield what is wrong with the use of FIBER, whatever the machine."""
    if program.mode not in MODES:
        yield Problem(f"mode {program.mode!r}; allowed: {', '.join(MODES)}")
        return
    if program.mode == "fiber":
        yield from _thread(program)
        yield from matrix_family_problems(program)
        for pc, instruction in enumerate(program.instructions):
            yield from (Problem(text, pc) for text in _instruction(program, instruction))
        yield from register_problems(program)
        return
    yield from _without_pool(program)
    if program.mode == "cuda-native":
        yield from _entries(program)


def _without_pool(program: WarpProgram) -> Iterator[Problem]:
    """Check a program whose warps have registers of their own."""
    if program.fiber is not None:
        yield Problem(f"a FIBER note in a program of mode {program.mode}; only mode fiber has one")
    for role in program.roles:
        if role.base:
            yield Problem(f"role {role.name!r} has base {role.base}; in mode {program.mode} it is 0")
    allowed = [Unit.SET_FIBER_NUM] if program.mode == "cuda-native" else []
    for pc, instruction in enumerate(program.instructions):
        if unit_of(instruction) in FIBER_UNITS and unit_of(instruction) not in allowed:
            yield Problem(f"{instruction.op} in a program of mode {program.mode}; it needs mode fiber", pc)
        if any(r is not None and r.place is not None for r in (instruction.dst, *instruction.src)):
            yield Problem(f"a register with a place in a program of mode {program.mode}; it needs mode fiber", pc)


def _entries(program: WarpProgram) -> Iterator[Problem]:
    """Check that a cuda-native program has one SETFIBER of all its warps in front of each role, and no other."""
    entries = {role.entry for role in program.roles}
    for pc, instruction in enumerate(program.instructions):
        at_entry, is_meeting = pc in entries, unit_of(instruction) is Unit.SET_FIBER_NUM
        if at_entry != is_meeting:
            yield Problem("a cuda-native program has a SETFIBER at each entry of a role, and nowhere else", pc)
        elif is_meeting:
            yield from (Problem(text, pc) for text in _set_fiber_num(program, instruction))
            if wefts_of(instruction.fibers) != program.warps_per_cta or instruction.all_scope:
                fibers = program.warps_per_cta * FIBERS
                yield Problem(f"SETFIBER of a cuda-native program names all fibers: {fibers}, without all_scope", pc)


def _thread(program: WarpProgram) -> Iterator[Problem]:
    """Check what the FIBER-thread takes, and its role table."""
    note = program.fiber
    if note is None:
        yield Problem("a program of mode fiber needs a FIBER note: the registers that it takes")
        return
    if not 1 <= note.registers <= 2 * WINDOW:
        yield Problem(f"{note.registers} registers of each subpartition; allowed: 1 to {2 * WINDOW}")
    if not 0 <= note.pool_first <= note.pool_limit <= note.registers:
        yield Problem(
            f"the pool is registers {note.pool_first} to {note.pool_limit - 1} of a subpartition; "
            f"the FIBER-thread has {note.registers}"
        )
    for role in program.roles:
        if role.base not in (0, WINDOW):
            yield Problem(f"role {role.name!r} has base {role.base}; allowed: 0, {WINDOW}")
        if role.first_warp == 0 and role.leader_only:
            yield Problem(f"role {role.name!r} has weft 0, which every FIBER-thread starts with; it is not leader_only")


def _instruction(program: WarpProgram, instruction: Instruction) -> Iterator[str]:
    """Check the fields of one instruction."""
    unit = unit_of(instruction)
    if unit in FIBER_UNITS and instruction.by != "warp":
        yield f"by={instruction.by}: every weft executes {instruction.op}; allowed: by=warp"
    if unit is Unit.SET_FIBER_NUM:
        yield from _set_fiber_num(program, instruction)
    elif unit is Unit.BIND:
        yield from _bind(instruction.bind)
    elif unit is Unit.BUSY_BIT:
        yield from _busy_bit(instruction)
    elif unit is Unit.WEFT_MMA:
        yield from weft_mma_problems(program, instruction)
    if instruction.bind is not None and unit is not Unit.BIND:
        yield f"bind belongs to DEPBAR.BIND, not to {instruction.op}"
    if (instruction.bit or instruction.set_bit) and unit is not Unit.BUSY_BIT:
        yield f"bit and set_bit belong to DEPBAR.BIT, not to {instruction.op}"
    if (instruction.fibers or instruction.all_scope) and unit is not Unit.SET_FIBER_NUM:
        yield f"fibers and all_scope belong to SETFIBER, not to {instruction.op}"
    if instruction.group and unit is not Unit.WEFT_MMA:
        yield f"group belongs to WMMA and WMMA.TM, not to {instruction.op}"


def _set_fiber_num(program: WarpProgram, instruction: Instruction) -> Iterator[str]:
    if instruction.fibers < 1:
        yield f"SETFIBER needs fibers, 1 or more; got {instruction.fibers}"
    elif wefts_of(instruction.fibers) > program.warps_per_cta:
        yield f"SETFIBER of {instruction.fibers} fibers; the roles declare {program.warps_per_cta} wefts of {FIBERS}"


def _bind(bind: Bind | None) -> Iterator[str]:
    if bind is None or not (bind.consume or bind.hold):
        yield "DEPBAR.BIND binds nothing; it needs consume or hold"
        return
    if bind.readers and not bind.hold:
        yield "readers are those of a held destination; there is no hold"
    if bind.scoped and not bind.consume:
        yield "scoped is about consumed slots; there is no consume"
    elif bind.scoped and set(bind.scoped) not in (set(bind.consume), {B_SLOT} & set(bind.consume)):
        alone = f", or {[B_SLOT]}" if B_SLOT in bind.consume else ""
        yield f"scoped names slots {list(bind.scoped)}; allowed: all consumed ones, {list(bind.consume)}{alone}"
    if len(set(bind.readers)) < len(bind.readers) or not set(bind.readers) <= set(range(SUBPARTITIONS)):
        yield f"readers {list(bind.readers)}; allowed: different ones of 0 to {SUBPARTITIONS - 1}"


def _busy_bit(instruction: Instruction) -> Iterator[str]:
    if instruction.bit not in ("empty", "full"):
        yield "DEPBAR.BIT needs bit, empty or full"
    if len(instruction.src) != 1 or instruction.dst is not None:
        yield "DEPBAR.BIT names one register group as its source, and has no destination"
        return
    named = instruction.src[0]
    if named.count not in BUSY_BIT_GROUPS or named.index % named.count:
        sizes = ", ".join(map(str, BUSY_BIT_GROUPS))
        yield f"DEPBAR.BIT names {named.count} registers from R{named.index}; allowed: aligned groups of {sizes}"
    if named.place == TENSOR:
        yield "DEPBAR.BIT cannot name tensor memory"


def feature_problems(program: WarpProgram, machine: Features) -> Iterator[Problem]:
    """Yield what the program uses and `machine` has not, or has switched off."""
    if program.mode == "simt":
        return
    if not machine.dynamic_parallelism:
        yield Problem(f"mode {program.mode}; {machine.name} has dynamic_parallelism off")
        return
    if program.mode != "fiber" or program.fiber is None:
        return
    registers, contexts = machine.vector_registers // machine.subpartitions, machine.max_wefts_per_subpartition
    if program.fiber.registers > registers:
        yield Problem(f"{program.fiber.registers} registers of each subpartition; {machine.name} has {registers}")
    if program.warps_per_cta > contexts * machine.subpartitions:
        yield Problem(f"{program.warps_per_cta} wefts; {machine.name} has {contexts} contexts a subpartition")
    for pc, instruction in enumerate(program.instructions):
        yield from (Problem(text, pc) for text in _missing(instruction, machine))


def _missing(instruction: Instruction, machine: Features) -> Iterator[str]:
    unit = unit_of(instruction)
    if unit in BIT_UNITS and not machine.fine_scheduling:
        yield f"{instruction.op}; {machine.name} has fine_scheduling off"
    if unit is Unit.BIND and machine.busy_bits == "paper":
        yield f'{instruction.op}; {machine.name} has busy_bits = "paper", which has no binds'
    remote = [source.place for source in instruction.src if source.place is not None and source.place >= 0]
    if remote and not machine.register_sharing:
        yield f"a source in subpartition {remote[0]}; {machine.name} has register_sharing off"
    elif remote and machine.sharing_scope == "subpartition":
        yield f'a source in subpartition {remote[0]}; {machine.name} has sharing_scope = "subpartition"'
    elif remote and max(remote) >= machine.subpartitions:
        yield f"a source in subpartition {max(remote)}; {machine.name} has {machine.subpartitions}"
