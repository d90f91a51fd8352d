"""How long an instruction keeps its pipe from the warp's next one, and when its result is there."""

from __future__ import annotations

from dataclasses import replace

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction
from heddle.machine.spec import Machine, OpTiming


def occupancy(row: Instruction, warps: int, machine: Machine, spread: float = 1.0) -> OpTiming:
    """Timing of an instruction that the `warps` of a role run at about the same time.

    A pipe of a subpartition is the warp's own; the SM's load/store unit is shared with the warps of the others. An
    asynchronous matrix instruction counts with its time in the matrix unit: what feeds the unit goes first. Arithmetic
    of fixed latency counts `spread` times.
    """
    timing = machine.op_timing(row.op, form=row.form, dtype=row.dtype, shape=row.shape)
    unit, cycles = OPCODES[row.op].unit, timing.initiation_cycles
    if unit in (Unit.SHARED, Unit.GLOBAL):
        cycles = max(cycles, _load_store_cycles(row, machine) * (min(warps, machine.subpartitions)))
    elif unit in (Unit.WGMMA, Unit.TCGEN05_MMA) and row.shape:
        m, n, k = row.shape
        rate = machine.tensor_flops_per_cycle * machine.tensor_rate_scale[row.dtype] * row.ctas
        cycles = max(cycles, 2 * m * n * k / rate)
    elif unit is Unit.FIXED:
        cycles *= spread
    return timing if cycles == timing.initiation_cycles else replace(timing, initiation_cycles=cycles)


def copy_cycles(row: Instruction, machine: Machine) -> int:
    """Least time from the issue of a bulk load to its end; 0 for anything else."""
    if OPCODES[row.op].unit is not Unit.BULK_LOAD:
        return 0
    return machine.l2_near_latency_cycles + machine.tma_extra_latency_cycles


def _load_store_cycles(row: Instruction, machine: Machine) -> float:
    """Time of one access in the load/store unit."""
    return row.bytes / machine.shared_bytes_per_cycle + (row.conflict_ways - 1) * machine.shared_conflict_cycles_per_way
