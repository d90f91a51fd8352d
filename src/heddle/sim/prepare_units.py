"""What the rows of each unit hold beyond the common fields: durations, latencies, streams, barriers, counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError, unknown_name
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.core import layout as c
from heddle.sim.prepare import (
    TICKS_PER_CYCLE,
    Names,
    cycles_to_ticks,
    number,
    transfer_ticks,
    where_is,
)

Row = NDArray[np.int64]
L1_BYTES_PER_CYCLE = 128  # width of the path to L1 (docs/reference/engine.md, section 4, GLOBAL)
HALF_RATE_ROWS = 64  # m at which one SM's tcgen05.mma runs at half rate (same page, TCGEN05_MMA)
DIRECTIONS = {"load": 0, "store": 1, "reduce": 2}
BARRIER_CTAS = {"own": 0, "leader": 1, "all": 2, "peer": 3}


def stage_ring(program: WarpProgram, instruction: Instruction, names: Names) -> int:
    """Return the ring whose stage the log shows: the barrier's, else the first effect access's, else -1."""
    if instruction.barrier is not None and instruction.barrier.ring is not None:
        return names.rings.get(instruction.barrier.ring, -1)
    if instruction.effect is not None and instruction.effect < len(program.effects):
        effect = program.effects[instruction.effect]
        for access in (*effect.reads, *effect.writes):
            if access.ring is not None:
                return names.rings.get(access.ring, -1)
    return -1


def fill_stream(row: Row, program: WarpProgram, pc: int, names: Names) -> None:
    """Fill in which block of which stream an access names."""
    instruction, where = program.instructions[pc], where_is(program, pc)
    reference = instruction.stream
    if reference is None:
        raise UserError(f"{instruction.op} at pc {pc} names no stream", where=where)
    row[c.X_STREAM] = number("stream", reference.name, names.streams, where)
    stream = program.streams[row[c.X_STREAM]]
    row[c.X_BASE] = number("item attribute", stream.base, names.attributes, where)
    row[c.X_LEVEL] = stream.level
    row[c.X_STEP] = stream.step
    row[c.X_OFFSET] = reference.offset
    row[c.X_PART] = reference.part
    row[c.X_PARTS] = reference.parts
    row[c.X_RANK_STRIDE] = reference.rank_stride if reference.part_by_rank else 0
    row[c.X_CTA_STEP] = stream.cta_step
    row[c.X_CTA_PART] = reference.parts // stream.multicast if stream.multicast > 1 else 0
    row[c.X_KIND] = DIRECTIONS[stream.direction]


def fill_barrier(row: Row, program: WarpProgram, pc: int, names: Names) -> None:
    """Fill in which mbarrier an instruction names."""
    instruction, where = program.instructions[pc], where_is(program, pc)
    reference = instruction.barrier
    if reference is None:
        raise UserError(f"{instruction.op} at pc {pc} names no mbarrier", where=where)
    if reference.name not in names.barriers:
        raise unknown_name("mbarrier", reference.name, names.barriers, where)
    first, count = names.barriers[reference.name]
    offset = last = reference.offset
    if reference.ring is not None:
        row[c.X_BARRIER_RING] = number("ring", reference.ring, names.rings, where)
        depth = program.rings[row[c.X_BARRIER_RING]].depth
        offset, last = reference.offset % depth, depth - 1
    if reference.offset < 0 or last >= count:
        raise UserError(f"pc {pc} uses element {last} of mbarrier {reference.name!r}; it has {count}", where=where)
    row[c.X_BARRIER], row[c.X_BARRIER_COUNT] = first, count
    row[c.X_BARRIER_OFFSET] = offset
    row[c.X_FLIP] = reference.flip
    row[c.X_BARRIER_CTA] = BARRIER_CTAS[reference.cta]


def _shared(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    instruction = program.instructions[pc]
    access = max(TICKS_PER_CYCLE, transfer_ticks(instruction.bytes, machine.shared_bytes_per_cycle))
    ways = cycles_to_ticks((instruction.conflict_ways - 1) * machine.shared_conflict_cycles_per_way)
    row[c.X_DURATION] = access + ways


def landing_ticks(instruction: Instruction, machine: Machine) -> int:
    """Return the ticks by which the landing of an asynchronous copy's bytes grows the backlog of shared memory."""
    return transfer_ticks(instruction.bytes * machine.shared_async_write_share, machine.shared_bytes_per_cycle)


def _global(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    instruction = program.instructions[pc]
    fill_stream(row, program, pc, names)
    row[c.X_DURATION] = max(TICKS_PER_CYCLE, transfer_ticks(instruction.bytes, L1_BYTES_PER_CYCLE))
    row[c.X_SHARED] = landing_ticks(instruction, machine)
    row[c.X_GROUP_COPY] = instruction.op == "LDGSTS"
    row[c.X_EXTRA] = machine.cp_async_extra_latency_cycles if instruction.op == "LDGSTS" else 0
    row[c.X_KIND] = {"STG": 1, "RED": 2}.get(instruction.op, 0)


def _bulk(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    instruction = program.instructions[pc]
    fill_stream(row, program, pc, names)
    request = transfer_ticks(instruction.bytes, machine.tma_bytes_per_cycle)
    row[c.X_DURATION] = max(cycles_to_ticks(machine.tma_issue_cycles), request)
    load = OPCODES[instruction.op].unit is Unit.BULK_LOAD
    row[c.X_SHARED] = (
        landing_ticks(instruction, machine)
        if load
        else transfer_ticks(instruction.bytes, machine.shared_bytes_per_cycle)
    )
    row[c.X_KIND] = {"UTMASTG": 1, "UTMAREDG": 2}.get(instruction.op, 0)
    if load:
        row[c.X_EXTRA] = machine.tma_extra_latency_cycles
        if instruction.barrier is not None:
            fill_barrier(row, program, pc, names)


def _bulk_peer(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    instruction = program.instructions[pc]
    if program.cluster_size % 2:
        raise UserError(
            f"a copy to the other CTA of a pair at pc {pc}, but clusters have {program.cluster_size} CTAs",
            where=where_is(program, pc),
        )
    if machine.cluster_bytes_per_cycle <= 0:
        raise UserError(
            f"a copy to the other CTA of a pair at pc {pc}, but machine field cluster_bytes_per_cycle of "
            f"{machine.name} is {machine.cluster_bytes_per_cycle:g}, which allows none",
            where=where_is(program, pc),
            hint="give the rate in B/cycle/SM in the machine file, or choose a kernel without copies to the peer "
            "(attention_bwd: pairs=0)",
        )
    fill_barrier(row, program, pc, names)
    request = transfer_ticks(instruction.bytes, machine.tma_bytes_per_cycle)
    row[c.X_DURATION] = max(cycles_to_ticks(machine.tma_issue_cycles), request)
    row[c.X_SHARED] = landing_ticks(instruction, machine)
    row[c.X_SOURCE] = transfer_ticks(instruction.bytes, machine.shared_bytes_per_cycle)
    row[c.X_LINK] = transfer_ticks(instruction.bytes, machine.cluster_bytes_per_cycle)
    row[c.X_EXTRA] = machine.tma_extra_latency_cycles + machine.cluster_remote_cycles


def _matrix_shape(program: WarpProgram, machine: Machine, pc: int) -> tuple[int, int, int, int, float]:
    """Return m, n, k, bytes an element and FLOPs a cycle of an asynchronous matrix instruction."""
    instruction, where = program.instructions[pc], where_is(program, pc)
    if instruction.shape is None:
        raise UserError(f"{instruction.op} at pc {pc} has no shape", where=where)
    if instruction.dtype not in machine.tensor_rate_scale:
        raise unknown_name(f"matrix type of {machine.name}", instruction.dtype, machine.tensor_rate_scale, where)
    rate = machine.tensor_flops_per_cycle * machine.tensor_rate_scale[instruction.dtype]
    return *instruction.shape, dtype_bytes(instruction.dtype, where), rate


def _wgmma(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    m, n, k, size, _ = _matrix_shape(program, machine, pc)
    form = program.instructions[pc].form
    row[c.X_BYTES] = (n * k + (m * k if form == "ss" else 0)) * size
    row[c.X_SHARED] = transfer_ticks(int(row[c.X_BYTES]), machine.shared_bytes_per_cycle)
    row[c.X_DURATION] = max(product_ticks(program, machine, pc), row[c.X_SHARED])


def product_ticks(program: WarpProgram, machine: Machine, pc: int) -> int:
    """Return how long a warp-group instruction takes the matrix unit if its operands come in time."""
    m, n, k, _, rate = _matrix_shape(program, machine, pc)
    floor = cycles_to_ticks(machine.wgmma_floor_rs_cycles) if program.instructions[pc].form == "rs" else 0
    return max(transfer_ticks(2 * m * n * k, rate), floor)


def _tcgen05(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    instruction, where = program.instructions[pc], where_is(program, pc)
    m, n, k, size, rate = _matrix_shape(program, machine, pc)
    ctas = instruction.ctas
    if ctas == 2 and program.cluster_size % 2:
        raise UserError(f"a CTA pair at pc {pc}, but clusters have {program.cluster_size} CTAs", where=where)
    rate *= ctas if ctas > 1 or m != HALF_RATE_ROWS else 0.5
    row[c.X_BYTES] = (n // ctas * k + (m // ctas * k if instruction.form == "ss" else 0)) * size
    row[c.X_SHARED] = transfer_ticks(int(row[c.X_BYTES]), machine.shared_bytes_per_cycle)
    overhead = cycles_to_ticks(machine.tcgen05_overhead_cycles)
    products = transfer_ticks(2 * m * n * k, rate)
    row[c.X_DURATION] = max(products, row[c.X_SHARED]) + overhead
    key = f"{instruction.form}_m{m}_{ctas}cta"
    if key not in machine.tcgen05_latency_cycles:
        raise unknown_name(f"tcgen05 form of {machine.name}", key, machine.tcgen05_latency_cycles, where)
    # from the end of the operand reads: completion does not wait for shared memory, it counts from the start
    row[c.X_EXTRA] = products + cycles_to_ticks(machine.tcgen05_latency_cycles[key]) - row[c.X_DURATION]


def _tensor_memory(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    instruction = program.instructions[pc]
    load = OPCODES[instruction.op].unit is Unit.TMEM_LOAD
    rate = machine.tensor_memory_read_bytes_per_cycle if load else machine.tensor_memory_write_bytes_per_cycle
    row[c.X_DURATION] = transfer_ticks(instruction.bytes, rate / machine.subpartitions)
    row[c.X_EXTRA] = machine.tensor_memory_latency_cycles


def _semaphore(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    instruction, where = program.instructions[pc], where_is(program, pc)
    row[c.X_ID] = number("item attribute", instruction.semaphore or "", names.attributes, where)


def _skip(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    instruction, where = program.instructions[pc], where_is(program, pc)
    row[c.X_ID] = number("item attribute", instruction.attribute or "", names.attributes, where)


def _loop(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    instruction, where = program.instructions[pc], where_is(program, pc)
    if instruction.count is None:
        raise UserError(f"{instruction.op} at pc {pc} has no count", where=where)
    count = instruction.count
    row[c.X_COUNT_ATTRIBUTE] = -1
    row[c.X_COUNT] = count.offset
    if count.attribute is None:
        row[c.X_COUNT] += count.value
    else:
        row[c.X_COUNT_ATTRIBUTE] = number("item attribute", count.attribute, names.attributes, where)


def _mbarrier(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    fill_barrier(row, program, pc, names)
    unit = OPCODES[program.instructions[pc].op].unit
    if unit is Unit.MBARRIER_WAIT:
        row[c.X_EXTRA] = machine.mbarrier_wait_cycles
    elif unit is Unit.WGMMA_SIGNAL:
        row[c.X_EXTRA] = max(1, machine.mbarrier_arrive_cycles)
    elif unit is Unit.TCGEN05_COMMIT:
        row[c.X_EXTRA] = max(1, machine.tcgen05_commit_cycles)


def _arrive(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    row[c.X_EXTRA] = machine.wgmma_arrive_cycles


def _set_registers(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    row[c.X_EXTRA] = machine.set_registers_cycles


Filler = Callable[[Row, WarpProgram, Machine, int, Names], None]
FILLERS: dict[Unit, Filler] = {
    Unit.SHARED: _shared,
    Unit.GLOBAL: _global,
    Unit.BULK_LOAD: _bulk,
    Unit.BULK_STORE: _bulk,
    Unit.BULK_PEER: _bulk_peer,
    Unit.WGMMA: _wgmma,
    Unit.WGMMA_ARRIVE: _arrive,
    Unit.TCGEN05_MMA: _tcgen05,
    Unit.TCGEN05_COMMIT: _mbarrier,
    Unit.WGMMA_SIGNAL: _mbarrier,
    Unit.TMEM_LOAD: _tensor_memory,
    Unit.TMEM_STORE: _tensor_memory,
    Unit.MBARRIER_EXPECT: _mbarrier,
    Unit.MBARRIER_ARRIVE: _mbarrier,
    Unit.MBARRIER_WAIT: _mbarrier,
    Unit.SET_REGISTERS: _set_registers,
    Unit.SEM_RELEASE: _semaphore,
    Unit.SEM_ACQUIRE: _semaphore,
    Unit.LOOP: _loop,
    Unit.SKIP: _skip,
    Unit.SPLIT: _loop,
}


def fill_unit(row: Row, program: WarpProgram, machine: Machine, pc: int, names: Names) -> None:
    """Fill what the instruction's unit needs in the second part of its row."""
    unit = OPCODES[program.instructions[pc].op].unit
    if unit in FILLERS:
        FILLERS[unit](row, program, machine, pc, names)
