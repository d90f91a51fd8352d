"""How long shared memory is busy: the time that the engine charges for each access, by what was executed.

Copies that land are charged at `shared_async_write_share` of their bytes, as the rest fills idle bank cycles; all other
accesses in full, with bank conflicts (docs/reference/engine.md, load/store unit). `traffic.smem_bytes` has all bytes.
"""

from __future__ import annotations

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, WarpProgram
from heddle.machine.spec import Machine
from heddle.metrics._pipes import issues_by_pc
from heddle.metrics.supply import acting_shares, shared_read_bytes
from heddle.sim.result import SimResult


def busy_cycles(result: SimResult, program: WarpProgram, machine: Machine) -> float:
    """Return the cycles of shared memory that accesses of the simulated SMs were charged, summed over these SMs."""
    acting = acting_shares(program)
    return sum(
        int(issued) * acting.get(pc, 1.0) * _cycles(program.instructions[pc], machine)
        for pc, issued in enumerate(issues_by_pc(result))
        if issued
    )


def _cycles(instruction: Instruction, machine: Machine) -> float:
    """Return what one access is charged, in all CTAs where its bytes land."""
    unit, rate = OPCODES[instruction.op].unit, machine.shared_bytes_per_cycle
    if unit is Unit.SHARED:
        conflicts = (instruction.conflict_ways - 1) * machine.shared_conflict_cycles_per_way
        return max(1.0, instruction.bytes / rate) + conflicts
    if unit is Unit.BULK_STORE:
        return instruction.bytes / rate
    if unit is Unit.BULK_PEER:
        return instruction.bytes * (1 + machine.shared_async_write_share) / rate
    if unit is Unit.BULK_LOAD or instruction.op == "LDGSTS":
        receivers = instruction.ctas if unit is Unit.BULK_LOAD else 1
        return receivers * instruction.bytes * machine.shared_async_write_share / rate
    return shared_read_bytes(instruction) / rate
