"""Checks of registers in programs of mode fiber: what can be named, and what a bind may name of its partner."""

from __future__ import annotations

from collections.abc import Iterator

from heddle.ir.opcodes import Unit
from heddle.ir.verify_flow import reachable
from heddle.ir.verify_problem import Problem, unit_of
from heddle.ir.warp import RZ, Instruction, Register, Role, WarpProgram
from heddle.ir.warp_fiber import BIND_SLOTS, OWN, SUBPARTITIONS, TENSOR, TENSOR_COLUMNS, WINDOW

QUAD = 4
SLOTS = "ABCD"
NO_PARTNERS = {  # instructions that a bind must not precede: branches, barriers, waits, bits
    Unit.LOOP, Unit.SKIP, Unit.NEXT_ITEM, Unit.EXIT, Unit.SPLIT, Unit.REJOIN, Unit.YIELD,
    Unit.SET_FIBER_NUM, Unit.BIND, Unit.BUSY_BIT,
    Unit.BARRIER_SYNC, Unit.BARRIER_ARRIVE, Unit.CLUSTER_SYNC,
    Unit.MBARRIER_EXPECT, Unit.MBARRIER_ARRIVE, Unit.MBARRIER_WAIT,
    Unit.GROUP_COMMIT, Unit.GROUP_WAIT, Unit.BULK_COMMIT, Unit.BULK_WAIT,
    Unit.WGMMA_ARRIVE, Unit.WGMMA_COMMIT, Unit.WGMMA_WAIT, Unit.WGMMA_SIGNAL, Unit.TCGEN05_COMMIT,
    Unit.SEM_ACQUIRE, Unit.SEM_RELEASE, Unit.SET_REGISTERS,
}  # fmt: skip

Named = tuple[int, int, bool]
"""Subpartition, number, and whether it is tensor memory."""


def register_problems(program: WarpProgram) -> Iterator[Problem]:
    """Yield what is wrong with the registers of each role, and with binds and their partners."""
    seen: set[tuple[int, str]] = set()
    targets = {i.target for i in program.instructions if i.target is not None} | {r.entry for r in program.roles}
    for role in program.roles:
        for pc in reachable(program, role):
            instruction = program.instructions[pc]
            texts = [*_instruction(instruction, role, program)]
            bound = unit_of(instruction) is Unit.BIND and pc + 1 < len(program.instructions)
            if bound and instruction.bind is not None:
                texts += _partner(program, role, pc, targets)
            for text in texts:
                if (pc, text) not in seen:
                    seen.add((pc, text))
                    yield Problem(text, pc)


def _instruction(instruction: Instruction, role: Role, program: WarpProgram) -> Iterator[str]:
    for source in instruction.src:
        yield from _register(source, role, program)
        if source.reuse and source.place not in (None, OWN):
            yield f"the operand cache bit of R{source.index}, which is not a register of the weft's own subpartition"
    dst = instruction.dst
    if dst is None:
        return
    yield from _register(dst, role, program)
    if dst.place is not None and dst.place >= 0:
        yield f"a destination in subpartition {dst.place}; a weft writes in its own only"
    if dst.place == OWN and not role.base <= dst.index <= dst.index + dst.count - 1 < role.base + WINDOW - 1:
        window = f"R{role.base} to R{role.base + WINDOW - 2}"
        yield f"a destination at R{dst.index} of the own subpartition; role {role.name!r} writes {window}"


def _register(register: Register, role: Role, program: WarpProgram) -> Iterator[str]:
    """Check that a group exists, is aligned, and can be named."""
    if register.place is None and register.index == RZ and register.count == 1:
        return
    if register.count < 1 or register.index < 0:
        yield f"a group of {register.count} registers from R{register.index}; needs 1 or more from R0"
        return
    first = register.index + (role.base if register.place is None else 0)
    last = first + register.count - 1
    if register.place == TENSOR:
        groups = program.tensor_memory_columns // TENSOR_COLUMNS
        if last >= groups:
            yield f"group {last} of {TENSOR_COLUMNS} columns of tensor memory; the FIBER-thread has {groups}"
        return
    if register.place is not None and not OWN <= register.place < SUBPARTITIONS:
        yield f"a register of subpartition {register.place}; a source can name 0 to {SUBPARTITIONS - 1}, or its own"
    registers = program.fiber.registers if program.fiber is not None else 0
    if last >= registers:
        yield f"register {last} of a subpartition; the FIBER-thread has 0 to {registers - 1}"
    if register.place is None and register.index + register.count > WINDOW - 1:
        yield f"a group that ends at R{register.index + register.count - 1}; a base reaches R0 to R{WINDOW - 2}"
    elif first < WINDOW <= last + 1:
        yield f"a group of {register.count} registers from {first} contains register {WINDOW - 1}, which reads as zero"
    size = QUAD if register.count >= QUAD else register.count
    if register.count > 1 and first % size:
        yield f"a group of {register.count} registers from R{register.index}; it must start at a multiple of {size}"


def _partner(program: WarpProgram, role: Role, pc: int, targets: set[int]) -> Iterator[str]:
    """Check what DEPBAR.BIND at `pc` binds to the next instruction."""
    bind, partner = program.instructions[pc].bind, program.instructions[pc + 1]
    assert bind is not None
    if unit_of(partner) in NO_PARTNERS or partner.op == "BRA":
        yield f"DEPBAR.BIND in front of {partner.op}, which has no registers to bind"
        return
    if pc + 1 in targets:
        yield f"a branch to {pc + 1} jumps between DEPBAR.BIND and its partner"
    if bind.hold and (partner.dst is None or _is_zero(partner.dst)):
        yield f"hold of the destination of {partner.op}, which has none"
    for slot in bind.consume:
        if not 0 <= slot < min(BIND_SLOTS, len(partner.src)) or _is_zero(partner.src[slot]):
            name = SLOTS[slot] if 0 <= slot < BIND_SLOTS else str(slot)
            yield f"consume of source {name} of {partner.op}, which has no register there"
            return
    if len(set(bind.consume)) < len(bind.consume):
        yield "a source slot is consumed twice"
    yield from _overlaps(partner, bind.consume, role)


def _overlaps(partner: Instruction, consume: tuple[int, ...], role: Role) -> Iterator[str]:
    """Check that no register is consumed in two slots, or consumed and written, for any weft of the role."""
    wefts = range(role.first_warp, role.first_warp + role.warps)
    for own in sorted({weft % SUBPARTITIONS for weft in wefts}):
        taken: set[Named] = set()
        for slot in dict.fromkeys(consume):
            group = _names(partner.src[slot], role, own)
            if taken & group:
                yield f"a register is consumed in two source slots of {partner.op}; consume exactly one"
                return
            taken |= group
        if partner.dst is not None and taken & _names(partner.dst, role, own):
            yield f"{partner.op} consumes a register that it writes: it would wait for ever, or undo the consume"
            return


def _names(register: Register, role: Role, own: int) -> set[Named]:
    """Return the registers of a group, for a weft of subpartition `own`."""
    if _is_zero(register):
        return set()
    first = register.index + (role.base if register.place is None else 0)
    place = register.place if register.place is not None and register.place >= 0 else own
    return {(place, number, register.place == TENSOR) for number in range(first, first + register.count)}


def _is_zero(register: Register) -> bool:
    return register.place is None and register.index == RZ
