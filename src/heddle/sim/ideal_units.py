"""How instructions take part in an idealised simulation: what they read and write, what orders them, how they act."""

from __future__ import annotations

from collections.abc import Iterable

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Instruction, Register, WarpProgram
from heddle.sim.core import layout_ideal as d
from heddle.sim.ideal import Ideal

MEETINGS = frozenset({Unit.BARRIER_SYNC, Unit.BARRIER_ARRIVE, Unit.CLUSTER_SYNC})
WAITS = frozenset({Unit.MBARRIER_WAIT, Unit.BARRIER_SYNC, Unit.CLUSTER_SYNC, Unit.SEM_ACQUIRE})
BRANCHES = frozenset({
    Unit.LOOP, Unit.SKIP, Unit.NEXT_ITEM, Unit.EXIT, Unit.SPLIT, Unit.REJOIN, Unit.YIELD,
})  # fmt: skip
SYNCHRONISATION = MEETINGS | WAITS | {Unit.MBARRIER_EXPECT, Unit.MBARRIER_ARRIVE, Unit.SEM_RELEASE}
"""What does nothing where barriers are off."""
REGISTER_UNITS = frozenset({Unit.FIXED, Unit.VARIABLE})
SET_PREDICATES = frozenset({"FSETP", "ISETP", "PLOP3", "R2P"})
READ_PREDICATES = frozenset({"FSEL", "SEL", "PLOP3"})
PRODUCTS = frozenset({Unit.WGMMA})
TOUCHES_DATA = frozenset({Unit.WGMMA, Unit.SHARED, Unit.GLOBAL, Unit.BULK_LOAD, Unit.BULK_STORE, Unit.BULK_PEER})


def unit_of(instruction: Instruction) -> Unit:
    """Return the unit of an instruction."""
    return OPCODES[instruction.op].unit


def registers(group: Iterable[Register]) -> tuple[int, ...]:
    """Return the registers that operands name, RZ left out."""
    return tuple(r.index + i for r in group if not (r.place is None and r.index == RZ) for i in range(r.count))


def sources_of(instruction: Instruction) -> tuple[int, ...]:
    """Return what an instruction reads: operands, accumulators, predicates."""
    group = list(instruction.src)
    if instruction.dst is not None and is_matrix(instruction):
        group.append(instruction.dst)
    predicates = (d.PREDICATES,) if instruction.op in READ_PREDICATES else ()
    return (*dict.fromkeys(registers(group)), *predicates)


def destinations_of(instruction: Instruction) -> tuple[int, ...]:
    """Return what an instruction writes."""
    named = registers((instruction.dst,)) if instruction.dst is not None else ()
    return (*named, d.PREDICATES) if instruction.op in SET_PREDICATES else named


def is_matrix(instruction: Instruction) -> bool:
    """Tell whether the destination is an accumulator."""
    return instruction.op == "HMMA" or unit_of(instruction) in PRODUCTS


def turns_of(program: WarpProgram) -> frozenset[int]:
    """Return the named barriers that only order products: behind their BAR.SYNC nothing else touches data first."""
    sync = [pc for pc, i in enumerate(program.instructions) if unit_of(i) is Unit.BARRIER_SYNC]
    firsts: dict[int, set[Unit]] = {}
    for pc in sync:
        following = (unit_of(i) for i in program.instructions[pc + 1 :])
        first = next((unit for unit in following if unit in TOUCHES_DATA or unit in BRANCHES), Unit.EXIT)
        firsts.setdefault(program.instructions[pc].barrier_id, set()).add(first)
    return frozenset(number for number, units in firsts.items() if units == {Unit.WGMMA})


def matrix_pcs(program: WarpProgram) -> frozenset[int]:
    """Return the instructions of the roles that issue products."""
    found: set[int] = set()
    for role in program.roles:
        pcs = list(role_pcs(program, role.entry))
        if any(unit_of(program.instructions[pc]) in PRODUCTS for pc in pcs):
            found.update(pcs)
    return frozenset(found)


def role_pcs(program: WarpProgram, entry: int) -> Iterable[int]:
    """Yield the instructions of a role, up to its EXIT."""
    for pc in range(entry, len(program.instructions)):
        yield pc
        if unit_of(program.instructions[pc]) is Unit.EXIT:
            return


def units_of(program: WarpProgram, ideal: Ideal) -> list[Unit]:
    """Return the unit of each instruction under what is idealised; what does nothing any more is a plain slot."""
    turns = turns_of(program) if ideal.warp_products else frozenset()
    products = matrix_pcs(program) if ideal.warp_products else frozenset()
    found = []
    for pc, instruction in enumerate(program.instructions):
        unit = unit_of(instruction)
        turn = unit in MEETINGS and unit is not Unit.CLUSTER_SYNC and instruction.barrier_id in turns
        turn |= ideal.warp_products and unit is Unit.WGMMA_ARRIVE
        if turn or (ideal.no_barriers and unit in SYNCHRONISATION):
            unit = Unit.FIXED
        elif unit is Unit.MBARRIER_ARRIVE and instruction.by == "group" and pc in products:
            unit = Unit.WGMMA_SIGNAL
        found.append(unit)
    return found


def kind_of(instruction: Instruction, unit: Unit) -> int:
    """Return the KIND_* of an instruction that acts as `unit`."""
    registers_only = unit_of(instruction) in REGISTER_UNITS
    unnamed = registers_only and instruction.dst is None
    kind = d.KIND_UNNAMED * unnamed
    kind |= d.KIND_ORDERED * (not registers_only or unnamed or bool(instruction.advance))
    kind |= d.KIND_FENCE * (unit in WAITS or unit in BRANCHES)
    return kind | d.KIND_MATRIX * (unit in PRODUCTS)
