"""Turn a warp program into the engine's integer rows: durations in ticks, pipes and barriers as numbers.

Everything that does not change while the program runs is computed here once, with Python's exact integers and `round`,
so that the core only adds and compares. What a unit needs beyond the common fields is in `prepare_units`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heddle.errors import SourceLocation, UserError, unknown_name
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import LOOP_LEVELS, SCOREBOARDS, Instruction, WarpProgram
from heddle.machine.spec import Machine, OpTiming
from heddle.sim.buffers import zeros
from heddle.sim.core import layout as c
from heddle.sim.core.layout_fiber import FLAG_MAY_BE_FULL, Y_FLAGS, Y_TESTS, Y_WORDS
from heddle.sim.prepare_ports import PortReads, port_reads
from heddle.sim.result import Stall

TICKS_PER_CYCLE = 1 << c.TICK_BITS

CONDITIONAL = {
    Unit.GROUP_WAIT, Unit.BULK_WAIT, Unit.WGMMA_WAIT, Unit.MBARRIER_WAIT, Unit.SEM_ACQUIRE, Unit.SET_FIBER_NUM,
}  # fmt: skip
OWN_COUNTERS = {
    Unit.SHARED, Unit.GLOBAL, Unit.BULK_STORE, Unit.WGMMA, Unit.TCGEN05_MMA, Unit.TMEM_LOAD, Unit.TMEM_STORE,
    Unit.WEFT_MMA,
}  # fmt: skip
QUEUES = {
    Unit.SHARED: c.QUEUE_LSU, Unit.GLOBAL: c.QUEUE_LSU, Unit.WGMMA: c.QUEUE_WGMMA,
    Unit.BULK_LOAD: c.QUEUE_TMA, Unit.BULK_STORE: c.QUEUE_TMA, Unit.BULK_PEER: c.QUEUE_TMA,
    Unit.TCGEN05_MMA: c.QUEUE_TCGEN05, Unit.WEFT_MMA: c.QUEUE_WEFT,
}  # fmt: skip
MIO_PIPES = ("lsu", "tma")
BY = {"warp": c.BY_WARP, "group": c.BY_GROUP, "role": c.BY_ROLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Numbers of a program's and a machine's named things."""

    pipes: Mapping[str, int]  # offset of the pipe's next free time in the subpartition or SM record
    rings: Mapping[str, int]
    streams: Mapping[str, int]
    attributes: Mapping[str, int]
    barriers: Mapping[str, tuple[int, int]]  # first element among the CTA's mbarriers, number of elements


def cycles_to_ticks(cycles: float) -> int:
    """Round a duration to ticks."""
    return round(TICKS_PER_CYCLE * cycles)


def transfer_ticks(amount: float, rate: float) -> int:
    """Return how long `amount` takes at `rate` a cycle, in ticks."""
    return round(TICKS_PER_CYCLE * amount / rate)


def names_of(program: WarpProgram, machine: Machine) -> Names:
    """Number the rings, streams, attributes, barriers and pipes."""
    if len(machine.pipes) > c.PIPES:
        raise UserError(f"{machine.name} has {len(machine.pipes)} pipes; the engine takes up to {c.PIPES}")
    if len(program.rings) > c.RINGS:
        raise UserError(f"{program.name}: {len(program.rings)} rings; the engine takes up to {c.RINGS}")
    base = {"subpartition": c.Q_PIPE, "sm": c.S_PIPE}
    barriers, first = {}, 0
    for barrier in program.barriers:
        barriers[barrier.name] = (first, barrier.count)
        first += barrier.count
    return Names(
        pipes={name: base[pipe.scope] + i for i, (name, pipe) in enumerate(machine.pipes.items())},
        rings={ring.name: i for i, ring in enumerate(program.rings)},
        streams={stream.name: i for i, stream in enumerate(program.streams)},
        attributes={name: i for i, name in enumerate(program.work.attributes)},
        barriers=barriers,
    )


def number(kind: str, name: str, numbers: Mapping[str, int], where: SourceLocation | None) -> int:
    """Look a name up. Raises UserError with the nearest names."""
    if name not in numbers:
        raise unknown_name(kind, name, numbers, where)
    return numbers[name]


def where_is(program: WarpProgram, pc: int) -> SourceLocation | None:
    """Return the source line of an instruction, if the program has it."""
    source = program.instructions[pc].source
    if source >= len(program.sources):
        return None
    return SourceLocation(program.sources[source].file, program.sources[source].line)


def timing_of(machine: Machine, instruction: Instruction) -> OpTiming:
    """Return pipe, initiation interval and latency of an instruction."""
    return machine.op_timing(instruction.op, form=instruction.form, dtype=instruction.dtype, shape=instruction.shape)


def cause_of(instruction: Instruction) -> Stall:
    """Return the reason of a warp that waits for this instruction's counters."""
    unit = OPCODES[instruction.op].unit
    if unit in (Unit.GLOBAL, Unit.BULK_LOAD, Unit.BULK_STORE, Unit.BULK_PEER):
        return Stall.LONG_SCOREBOARD
    return Stall.MATRIX_SCOREBOARD if instruction.op == "HMMA" or unit is Unit.WEFT_MMA else Stall.SHORT_SCOREBOARD


def branch_targets(program: WarpProgram) -> set[int]:
    """Return the program counters that are branched to or are role entries."""
    targets = {i.target for i in program.instructions if i.target is not None}
    return targets | {role.entry for role in program.roles}


def _check(program: WarpProgram, pc: int) -> None:
    """Raise UserError for fields that no engine could follow."""
    instruction, where = program.instructions[pc], where_is(program, pc)
    if instruction.op not in OPCODES:
        raise unknown_name("opcode", instruction.op, OPCODES, where)
    unit = OPCODES[instruction.op].unit
    if unit in (Unit.LOOP, Unit.SKIP, Unit.NEXT_ITEM, Unit.SPLIT, Unit.REJOIN):
        if instruction.target is None or not 0 <= instruction.target < len(program.instructions):
            raise UserError(
                f"{instruction.op} at pc {pc} branches to {instruction.target}; "
                f"targets are 0 to {len(program.instructions) - 1}",
                where=where,
            )
        if not 0 <= instruction.level < LOOP_LEVELS:
            raise UserError(
                f"loop level {instruction.level} at pc {pc}; levels are 0 to {LOOP_LEVELS - 1}", where=where
            )
    if unit is not Unit.EXIT and pc + 1 == len(program.instructions):
        raise UserError(f"the program runs past its end after pc {pc} ({instruction.op})", where=where)
    counters = set(instruction.control.wait) | {instruction.control.write_barrier, instruction.control.read_barrier}
    if bad := counters - {None, *range(SCOREBOARDS)}:
        raise UserError(f"dependence counter {bad.pop()} at pc {pc}; there are SB0 to SB{SCOREBOARDS - 1}", where=where)
    if not 0 <= instruction.pending < c.GROUPS and unit is not Unit.SEM_ACQUIRE:
        raise UserError(
            f"{instruction.pending} pending groups at pc {pc}; a wait takes 0 to {c.GROUPS - 1}", where=where
        )
    if not 0 <= instruction.barrier_id < c.NAMED:
        raise UserError(f"named barrier {instruction.barrier_id} at pc {pc}; there are 0 to {c.NAMED - 1}", where=where)


def _flags(instruction: Instruction, unit: Unit) -> int:
    """Return the packed word of a row."""
    control = instruction.control
    released = (control.write_barrier is not None) | (control.read_barrier is not None) << 1
    if unit in (Unit.BULK_LOAD, Unit.BULK_PEER):
        released &= 2
    elif unit in OWN_COUNTERS:
        released = 0
    return (
        unit
        | BY[instruction.by] << c.BY_SHIFT
        | QUEUES.get(unit, c.QUEUE_NONE) << c.QUEUE_SHIFT
        | released << c.COUNTERS_SHIFT
        | sum(1 << counter for counter in control.wait) << c.WAIT_SHIFT
        | c.FLAG_CONDITION * (unit in CONDITIONAL)
        | c.FLAG_ADVANCE * bool(instruction.advance)
    )


def _hot(
    row: NDArray[np.int64], program: WarpProgram, machine: Machine, pc: int, names: Names, read: PortReads
) -> None:
    """Fill the common fields of one row."""
    instruction = program.instructions[pc]
    control, unit = instruction.control, OPCODES[instruction.op].unit
    timing = timing_of(machine, instruction)
    row[c.P_FLAGS] = _flags(instruction, unit)
    row[c.P_STALL] = max(1, control.stall)
    row[c.P_PIPE] = number("pipe", timing.pipe, names.pipes, where_is(program, pc))
    row[c.P_INITIATION] = cycles_to_ticks(timing.initiation_cycles)
    row[c.P_PORTS], row[c.P_OWN] = read.plain, read.own
    row[c.P_ACCOUNT] = pc * c.REASONS


def _queue_cause(unit: Unit) -> Stall:
    """Return the reason while the unit's queue is full."""
    if unit in (Unit.WGMMA, Unit.TCGEN05_MMA, Unit.WEFT_MMA):
        return Stall.GMMA
    return Stall.LG_THROTTLE if unit is Unit.GLOBAL else Stall.MIO_THROTTLE


def _cold(row: NDArray[np.int64], program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    """Fill the fields that all units share in the second part of a row."""
    from heddle.sim.prepare_units import stage_ring

    instruction, where = program.instructions[pc], where_is(program, pc)
    row[c.X_CAUSE] = cause_of(instruction)
    row[c.X_ADVANCE] = sum({1 << number("ring", name, names.rings, where) for name in instruction.advance})
    row[c.X_BYTES] = instruction.bytes
    row[c.X_CTAS] = instruction.ctas
    row[c.X_WARPS] = instruction.warps
    row[c.X_ID] = instruction.barrier_id
    row[c.X_PENDING] = instruction.pending
    row[c.X_LEVEL] = instruction.level
    row[c.X_TARGET] = (instruction.target or 0) * c.P_WORDS
    row[c.X_PC] = pc
    row[c.X_LINE] = pc // 8
    row[c.X_BARRIER_RING] = -1
    row[c.X_STAGE_RING] = stage_ring(program, instruction, names)
    timing = timing_of(machine, instruction)
    row[c.X_PIPE_CAUSE] = Stall.MIO_THROTTLE if timing.pipe in MIO_PIPES else Stall.MATH_PIPE_THROTTLE
    row[c.X_LATENCY] = timing.latency_cycles
    control = instruction.control
    row[c.X_WRITE] = -1 if control.write_barrier is None else control.write_barrier
    row[c.X_READ] = -1 if control.read_barrier is None else control.read_barrier
    row[c.X_QUEUE_CAUSE] = _queue_cause(OPCODES[instruction.op].unit)


def prepare(program: WarpProgram, machine: Machine) -> NDArray[np.int64]:
    """Return the engine's rows of a program (layout: `sim.core.layout`, P_ and X_ words).

    Raises UserError if an instruction names something that the program or the machine does not have.
    """
    from heddle.sim.prepare_fiber import bases, has_bits, is_remote, prepare_fiber
    from heddle.sim.prepare_units import fill_unit

    names, count = names_of(program, machine), len(program.instructions)
    parts = c.P_WORDS + c.X_WORDS + (0 if program.mode == "simt" else Y_WORDS)
    rows, kept = zeros(count * parts), []
    targets = branch_targets(program)
    base = bases(program) if program.mode == "fiber" else {}
    for pc in range(count):
        _check(program, pc)
        remote = program.mode == "fiber" and is_remote(program.instructions[pc])
        reads = port_reads(program, machine, pc, targets, base.get(pc, 0), remote=remote)
        kept.append(reads.kept)
        hot = rows[pc * c.P_WORDS : (pc + 1) * c.P_WORDS]
        start = count * c.P_WORDS + pc * c.X_WORDS
        hot[c.P_COLD] = start
        _hot(hot, program, machine, pc, names, reads)
        cold = rows[start : start + c.X_WORDS]
        cold[c.X_PORTS_REUSE] = reads.reuse
        _cold(cold, program, machine, pc, names)
        fill_unit(cold, program, machine, pc, names)
    if program.mode != "simt":
        third = rows[fiber_rows(program) :] = prepare_fiber(program, machine, kept, base)
        bits = has_bits(program, machine)
        for pc, instruction in enumerate(program.instructions):
            remote = program.mode == "fiber" and is_remote(instruction)
            tests = bits and third[pc * Y_WORDS + Y_TESTS] != 0
            full = bits and third[pc * Y_WORDS + Y_FLAGS] & FLAG_MAY_BE_FULL != 0
            flags = c.FLAG_REMOTE * remote | c.FLAG_BITS * tests | c.FLAG_FULL * full
            rows[pc * c.P_WORDS + c.P_FLAGS] |= flags
    return rows


def fiber_rows(program: WarpProgram) -> int:
    """Return where the third part of a program's rows begins."""
    return len(program.instructions) * (c.P_WORDS + c.X_WORDS)
