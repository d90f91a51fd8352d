"""What warps wait for when nothing will happen any more; for wefts, which register and who could free it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, Role, WarpProgram
from heddle.sim.reference.registers import Physical, operands, registers, written
from heddle.sim.reference.warp import Warp

if TYPE_CHECKING:
    from heddle.sim.reference.cta import Cluster

SHOWN = 8  # warps in one message
NOW = 1 << 60  # later than any change of a bit


def stuck_report(resident: list[Warp], cycle: int) -> str:
    """Say which warps wait after `cycle`, and for what."""
    if any(warp.cta.thread is not None for warp in resident):
        lines = [f"deadlock: nothing issues after cycle {cycle}: {len(resident)} wefts wait"]
        lines += [f"  {_place(warp)} {_what(warp)}" for warp in resident[:SHOWN]]
        return "\n".join([*lines, *_cycle_of_wefts(resident), *_cycle_of_queues(resident)])
    return f"deadlock: nothing issues after cycle {cycle}; waiting: {', '.join(map(_plain, resident[:SHOWN]))}"


def unfinished(clusters: Iterable[Cluster]) -> str:
    """Say which operations of ended FIBER-threads never started; empty if there are none."""
    threads = [cta.thread for cluster in clusters for cta in cluster.ctas if cta.thread is not None]
    late = [operation for thread in threads for operation in thread.unfinished()]
    if not late:
        return ""
    places = ", ".join(f"weft {operation.warp.index} at pc {operation.pc}" for operation in late[:SHOWN])
    return f"all wefts have ended, but these operations never started: {places}"


def _plain(warp: Warp) -> str:
    op = warp.cta.cluster.chip.program.instructions[warp.pc].op
    return f"warp {warp.index} of SM {warp.cta.sm.number} at pc {warp.pc} ({op})"


def _place(warp: Warp) -> str:
    program = warp.cta.cluster.chip.program
    return f"weft {warp.index} ({warp.role.name}) of SM {warp.cta.sm.number} at {_line(program, warp.pc)}"


def _line(program: WarpProgram, pc: int) -> str:
    """Return program counter, opcode and source line of an instruction."""
    instruction = program.instructions[pc]
    if instruction.source >= len(program.sources):
        return f"pc {pc} ({instruction.op})"
    source = program.sources[instruction.source]
    return f"pc {pc} ({instruction.op}, {source.file}:{source.line})"


def _needs(warp: Warp) -> tuple[list[Physical], list[Physical]]:
    """Return the registers that a weft waits to be written, and those that it waits to be consumed."""
    thread, instruction = warp.cta.thread, warp.cta.cluster.chip.program.instructions[warp.pc]
    if thread is None or OPCODES[instruction.op].unit is Unit.BUSY_BIT or warp.latched < 4:
        return [], []
    unready = thread.unready(warp, instruction, NOW)
    return unready, [] if unready else thread.unreleased(warp, instruction, NOW)


def _what(warp: Warp) -> str:
    """Say what a weft waits for, and who could end that."""
    program = warp.cta.cluster.chip.program
    unready, unreleased = _needs(warp)
    if unready:
        who = _users(warp, unready[0], _writes)
        return f"waits for a datum in {unready[0]}, {_named(program, who, 'written', 'writes')}"
    if unreleased:
        who = _users(warp, unreleased[0], _gives_back)
        return f"waits for {unreleased[0]} to be consumed, {_named(program, who, 'given back', 'gives back')}"
    if OPCODES[program.instructions[warp.pc].op].unit is Unit.SET_FIBER_NUM:
        return _meeting(warp)
    return "waits"


def _meeting(warp: Warp) -> str:
    """Say what a weft at SETFIBER waits for."""
    if warp.cta.thread is None or not warp.cta.meeting.all_here():
        return "waits for the other wefts at SETFIBER"
    late = warp.cta.thread.unfinished()
    places = ", ".join(f"weft {operation.warp.index} at pc {operation.pc}" for operation in late[:SHOWN])
    return f"waits until nothing is in flight on the pool; not started: {places}"


def _named(program: WarpProgram, who: list[tuple[Role, int]], passive: str, active: str) -> str:
    if not who:
        return f"which is not {passive} by any weft"
    role, pc = who[0]
    return f"which {role.name} {active} at {_line(program, pc)}"


def _users(warp: Warp, register: Physical, uses: object) -> list[tuple[Role, int]]:
    """Return the roles and program counters of instructions that use a register in a way."""
    assert callable(uses)
    program = warp.cta.cluster.chip.program
    return [
        (other.role, pc) for other in warp.cta.warps for pc in _code(program, other.role) if uses(other, pc, register)
    ]


def _code(program: WarpProgram, role: Role) -> Iterator[int]:
    """Yield the program counters from a role's entry to its end."""
    for pc in range(role.entry, len(program.instructions)):
        yield pc
        if OPCODES[program.instructions[pc].op].unit is Unit.EXIT:
            return


def _writes(warp: Warp, pc: int, register: Physical) -> bool:
    return register in written(warp, warp.cta.cluster.chip.program.instructions[pc])


def _gives_back(warp: Warp, pc: int, register: Physical) -> bool:
    """Tell whether the instruction at `pc` consumes a register, or clears its full bit."""
    instructions = warp.cta.cluster.chip.program.instructions
    instruction: Instruction = instructions[pc]
    if instruction.bit:
        return instruction.bit == "full" and not instruction.set_bit and register in registers(warp, instruction.src[0])
    if warp.cta.thread is not None and warp.cta.thread.paper:
        return register in operands(warp, instruction)
    bind = instructions[pc - 1].bind if pc else None
    slots = bind.consume if bind is not None else ()
    return any(register in registers(warp, instruction.src[slot]) for slot in slots)


def _cycle_of_queues(resident: list[Warp]) -> list[str]:
    """Return a line for each SM whose matrix queues have groups in different orders; none if there are no such."""
    lines = []
    for sm in dict.fromkeys(warp.cta.sm for warp in resident):
        heads = sm.weft_matrix.queues.waiting()
        complete = [head for head in heads if head.group is not None and head.group.complete]
        if len({id(head.group) for head in complete}) > 1:
            firsts = ", ".join(f"subpartition {head.place} has weft {head.warp.index} first" for head in complete)
            lines.append(f"  cycle of waits in the matrix queues: {firsts}")
    return lines


def _cycle_of_wefts(resident: list[Warp]) -> list[str]:
    """Return a line that names wefts each of which waits for the next; none if there is no such cycle."""
    waits = {}
    for warp in resident:
        unready, unreleased = _needs(warp)
        uses = _writes if unready else _gives_back
        roles = {role.name for register in (unready or unreleased)[:1] for role, _ in _users(warp, register, uses)}
        waits[warp.index] = [other.index for other in resident if other.role.name in roles and other is not warp]
    for start in waits:
        path = [start]
        while waits.get(path[-1]):
            following = waits[path[-1]][0]
            if following in path:
                loop = [*path[path.index(following) :], following]
                return ["  cycle of waits: " + " -> ".join(f"weft {index}" for index in loop)]
            path.append(following)
    return []
