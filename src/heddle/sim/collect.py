"""Turn the engine's accounts into a `SimResult`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.sim import fiber_faults
from heddle.sim.core import layout as c
from heddle.sim.core import layout_fiber as f
from heddle.sim.prepare import timing_of
from heddle.sim.result import FiberCounts, SimResult, Stall

if TYPE_CHECKING:
    from heddle.sim.session import Sim


def pipe_busy(
    program: WarpProgram, machine: Machine, rows: NDArray[np.int64], acted: NDArray[np.int64]
) -> dict[str, float]:
    """Return the busy cycles of each pipe: issues of each pc in which the warp acted, times the initiation interval."""
    busy = dict.fromkeys(machine.pipes, 0.0)
    for pc, instruction in enumerate(program.instructions):
        if acted[pc]:
            timing = timing_of(machine, instruction)
            ticks = int(rows[pc * c.P_WORDS + c.P_INITIATION])
            busy[timing.pipe] += int(acted[pc]) * ticks / (1 << c.TICK_BITS)
    return busy


def fiber_counts(state: NDArray[np.int64]) -> FiberCounts:
    """Return what happened in the register files."""
    return FiberCounts(
        crossbar_reads=int(state[f.H_CROSSED]),
        port_denials=int(state[f.H_DENIED]),
        shared_reads=int(state[f.H_SHARED_READS]),
        bits_set=int(state[f.H_BITS_SET]),
        bits_cleared=int(state[f.H_BITS_CLEARED]),
    )


def collect(sim: Sim, log: NDArray[Any] | None, fast_forwarded: int, repeats: list[tuple[int, int, int]]) -> SimResult:
    """Return the result of what `sim` has simulated so far."""
    state, extent, machine = sim.flushed_state(), sim.extent, sim.machine
    warps = [extent.warp(*context) for context in extent.contexts()]
    stalls = np.array([state[at + c.W_ACCOUNT : at + c.W_ACCOUNT + len(Stall)] for at in warps])
    pcs = state[extent.base["pcs"] : extent.base["pcs"] + len(sim.program.instructions) * c.REASONS]
    stalls_pc = pcs.reshape(-1, c.REASONS)[:, : len(Stall)].copy()
    issued = int(stalls_pc[:, Stall.SELECTED].sum())
    sms = [extent.sm(sm) for sm in range(extent.sms)]
    acted = stalls_pc[:, Stall.SELECTED] - pcs.reshape(-1, c.REASONS)[:, c.ACCOUNT_OFF]
    busy = pipe_busy(sim.program, machine, sim.rows, acted)
    weft_busy = int(state[f.H_WEFT_BUSY]) / machine.subpartitions
    matrix = sum(int(state[at + c.S_MATRIX_BUSY]) for at in sms)
    cycles = int(state[c.H_END]) if sim.finished else int(state[c.H_TIME])
    traffic = sim.memory.traffic()
    items = slice(extent.base["item_done"], extent.base["item_done"] + len(sim.program.work.items))
    return SimResult(
        cycles=cycles,
        sm_cycles=cycles * extent.sms,
        warp_instructions=issued,
        stalls=stalls,
        warp_role=state[[at + c.W_ROLE for at in warps]],
        stalls_pc=stalls_pc,
        pipe_busy=busy,
        pipe_instances={
            name: extent.sms * (machine.subpartitions if pipe.scope == "subpartition" else 1)
            for name, pipe in machine.pipes.items()
        },
        tensor_busy_cycles=(matrix + weft_busy) / (1 << c.TICK_BITS) + busy.get("tensor", 0.0) / machine.subpartitions,
        issue_slots_used=issued,
        active_warp_cycles=int(stalls.sum()),
        dram_read_bytes=traffic.dram_read_bytes,
        dram_write_bytes=traffic.dram_write_bytes,
        l2_read_bytes=traffic.l2_read_bytes,
        l2_write_bytes=traffic.l2_write_bytes,
        shared_bytes=sum(int(state[at + c.S_SHARED_BYTES]) for at in sms),
        simulated_sms=extent.sms,
        fast_forwarded_cycles=fast_forwarded,
        clock_mhz=sim.clock_mhz,
        mode=sim.mode,
        log=log,
        repeats=repeats,
        item_done_cycles=state[items].copy(),
        fiber=fiber_counts(state) if sim.program.mode == "fiber" else None,
        warnings=fiber_faults.warnings(sim),
    )
