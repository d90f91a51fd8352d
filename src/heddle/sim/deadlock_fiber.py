"""What wefts wait for in words: bits of registers and who could change them, meetings, matrix queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Instruction, Register, Role, WarpProgram
from heddle.ir.warp_fiber import TENSOR
from heddle.sim.core import blocked_fiber as blocked
from heddle.sim.core import layout as c
from heddle.sim.core import layout_fiber as f
from heddle.sim.core.arbiter import queue_of_sub
from heddle.sim.core.clears import make_changes
from heddle.sim.core.registers import fiber_row
from heddle.sim.fiber_faults import register_name

if TYPE_CHECKING:
    from heddle.sim.session import Sim

Physical = tuple[int, int, bool]
"""Subpartition, number, and whether it is tensor memory."""
Uses = Callable[[WarpProgram, int, Role, int, Physical], bool]


def registers(register: Register | None, role: Role, own: int) -> set[Physical]:
    """Return the registers of a group, for a weft of subpartition `own`."""
    if register is None or (register.place is None and register.index == RZ):
        return set()
    first = register.index + (role.base if register.place is None else 0)
    place = register.place if register.place is not None and register.place >= 0 else own
    return {(place, number, register.place == TENSOR) for number in range(first, first + register.count)}


def physical(index: int) -> Physical:
    """Return which register has a place in the sequence of all subpartitions (`layout_fiber.PLACE_NUMBERS`)."""
    place, number = divmod(index, f.PLACE_NUMBERS)
    tensor = number >= f.TENSOR_FIRST
    return place, number - f.TENSOR_FIRST * tensor, tensor


def writes(program: WarpProgram, pc: int, role: Role, own: int, register: Physical) -> bool:
    """Tell whether the instruction at `pc` writes a register, or declares it ready."""
    instruction = program.instructions[pc]
    if instruction.bit == "empty" and not instruction.set_bit:
        return register in registers(instruction.src[0], role, own)
    return register in registers(instruction.dst, role, own)


def gives_back(program: WarpProgram, pc: int, role: Role, own: int, register: Physical) -> bool:
    """Tell whether the instruction at `pc` consumes a register, or clears its full bit."""
    instruction = program.instructions[pc]
    if instruction.bit:
        clears = instruction.bit == "full" and not instruction.set_bit
        return clears and register in registers(instruction.src[0], role, own)
    bind = program.instructions[pc - 1].bind if pc else None
    slots = bind.consume if bind is not None else ()
    return any(register in registers(instruction.src[slot], role, own) for slot in slots)


def _code(program: WarpProgram, role: Role) -> Iterator[int]:
    """Yield the program counters from a role's entry to its EXIT."""
    for pc in range(role.entry, len(program.instructions)):
        yield pc
        if OPCODES[program.instructions[pc].op].unit is Unit.EXIT:
            return


def users(program: WarpProgram, register: Physical, uses: Uses, line: Callable[[int], str]) -> tuple[str, ...]:
    """Return for each role that uses a register in a way where it does so first."""
    found: dict[str, str] = {}
    for role in program.roles:
        owns = {weft % c.SUBPARTITIONS for weft in range(role.first_warp, role.first_warp + role.warps)}
        for pc in _code(program, role):
            if role.name not in found and any(uses(program, pc, role, own, register) for own in owns):
                found[role.name] = f"role {role.name!r} ({program.instructions[pc].op} at pc {pc}, {line(pc)})"
    return tuple(found.values())


def bit_wait(sim: Sim, at: int, pc: int, line: Callable[[int], str]) -> tuple[str, tuple[str, ...]] | None:
    """Return what a candidate waits for if a bit holds it up, and who could change that; None if none does."""
    state, now = sim.state.copy(), int(sim.state[c.H_TIME])
    row = int(state[at + c.W_ROW])
    if not sim.rows[row + c.P_FLAGS] & c.FLAG_BITS:
        return None
    fiber = fiber_row(state, row)
    make_changes(state, int(state[at + c.W_SM]), now)
    if empty := blocked.find_empty(state, sim.rows, at, fiber, now):
        index = _index(state, at, empty)
        who = users(sim.program, physical(index), writes, line)
        why = "POOL_EMPTY" if who else "no weft writes it"
        return f"waits for a datum in {register_name(index)} ({why})", who
    if full := blocked.find_full(state, sim.rows, at, fiber):
        index = _index(state, at, full)
        who = users(sim.program, physical(index), gives_back, line)
        why = "POOL_FULL" if who else "no weft consumes it"
        return f"waits for {register_name(index)} to be consumed ({why})", who
    return None


def _index(state: NDArray[np.int64], at: int, wait: int) -> int:
    """Return the place in the sequence of all subpartitions of the register that a weft waits for (W_WAIT)."""
    place, word = divmod((wait >> c.WORD_BITS) - int(state[at + c.W_REGISTERS]), f.PLACE_WORDS)
    number = (word % f.BIT_WORDS << c.WORD_BITS) + wait % (1 << c.WORD_BITS)
    return place * f.PLACE_NUMBERS + number


def meeting(sim: Sim, at: int) -> str:
    """Say for whom a weft waits at its SETFIBER."""
    state, cta = sim.state, int(sim.state[at + c.W_CTA])
    missing = int(state[cta + c.C_LIVE]) - int(state[cta + c.C_ARRIVED])
    if missing:
        return f"waits for the other wefts at SETFIBER: {missing} of {int(state[cta + c.C_LIVE])} have not come"
    unknown = int(state[cta + c.C_POOL_UNKNOWN])
    return f"waits at SETFIBER for what is in flight on the pool ({unknown} operations have not started)"


def weft_queue(sim: Sim, at: int, instruction: Instruction) -> str | None:
    """Say what is first in the matrix queue that a weft waits for; None if it does not wait for one."""
    state, sub = sim.state, int(sim.state[at + c.W_SUB])
    if OPCODES[instruction.op].unit is not Unit.WEFT_MMA or blocked.weft_queue_until(state, sub) < c.INF:
        return None
    queue = queue_of_sub(state, sub)
    head = int(state[queue + f.V_OP + int(state[queue + f.V_DECIDED]) % f.QUEUED])
    weft, pc = int(state[state[head + f.O_WARP] + c.W_WARP]), int(state[head + f.O_ROW]) // c.P_WORDS
    return (
        f"waits for a place in the matrix queue of its subpartition (GMMA), where group instruction "
        f"{int(state[head + f.O_GROUP])} of weft {weft} at pc {pc} is first and waits for its other wefts"
    )
