"""The reference engine: slow, plain, cycle by cycle.

Written from docs/reference/engine.md alone, to check the fast engine: both must agree on every cycle and every count.
"""

from __future__ import annotations

import numpy as np

from heddle.errors import unknown_name
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_verify import verify
from heddle.machine.spec import Machine
from heddle.sim.reference.chip import Chip
from heddle.sim.reference.event_log import EventRecorder
from heddle.sim.reference.memory import MemorySystem
from heddle.sim.reference.schedulers import Policy, policy
from heddle.sim.reference.setup import make_setup
from heddle.sim.reference.ticks import TICKS_PER_CYCLE
from heddle.sim.reference.warm import warm_up
from heddle.sim.result import FiberCounts, SimResult, Stall

_L2_STATES = ("warm", "cold", "flushed")


def simulate_reference(
    program: WarpProgram,
    machine: Machine,
    *,
    mode: str = "chip",
    l2_state: str = "warm",
    clock_mhz: float | None = None,
    scheduler: str | Policy = "gty",
    log: bool = False,
) -> SimResult:
    """Simulate a program cycle by cycle.

    `mode`: chip or sm; `l2_state`: warm (where all fits), cold or flushed; `clock_mhz`: default the maximum;
    `scheduler`: gty, gto, lrr, or a function (`schedulers.Policy`); `log`: keep all events of all simulated SMs but
    the spans of waiting.
    Raises UserError on a program that does not fit or gets stuck, UnsupportedError on what the engine does not model.
    """
    clock = machine.max_clock_mhz if clock_mhz is None else clock_mhz
    return result_of(run_chip(program, machine, mode, l2_state, clock, scheduler, log=log), clock)


def run_chip(
    program: WarpProgram,
    machine: Machine,
    mode: str,
    l2_state: str,
    clock: float,
    scheduler: str | Policy = "gty",
    *,
    log: bool = False,
) -> Chip:
    """Run a program to its end and return the chip with all that it counted."""
    if l2_state not in _L2_STATES:
        raise unknown_name("L2 state", l2_state, _L2_STATES)
    if program.mode != "simt":
        verify(program, machine)
    setup = make_setup(program, machine, mode, l2_state)
    memory = MemorySystem(machine, clock, l2_state, share=1 if mode == "chip" else min(setup.groups, setup.resident))
    if l2_state == "warm":
        warm_up(memory, program, machine)
    index = {number: row for row, number in enumerate(setup.sm_numbers)}
    recorder = EventRecorder(program, index, on=log)
    chip = Chip(program, machine, setup, memory, policy(scheduler), recorder)
    chip.run()
    return chip


def _fiber_counts(chip: Chip) -> FiberCounts:
    arbiters = [sm.arbiter for sm in chip.sms.values()]
    return FiberCounts(
        crossbar_reads=sum(arbiter.crossed for arbiter in arbiters),
        port_denials=sum(arbiter.denials for arbiter in arbiters),
        shared_reads=sum(arbiter.shared for arbiter in arbiters),
        bits_set=sum(bits.bits_set for bits in chip.bits),
        bits_cleared=sum(bits.bits_cleared for bits in chip.bits),
    )


def result_of(chip: Chip, clock_mhz: float) -> SimResult:
    """Return the result of a chip that has run to its end."""
    program, machine, sms = chip.program, chip.machine, list(chip.sms.values())
    contexts = chip.setup.slots * program.warps_per_cta
    stalls = np.zeros((len(sms) * contexts, len(Stall)), dtype=np.int64)
    for row, sm in enumerate(sms):
        for context in range(contexts):
            stalls[row * contexts + context] = chip.stalls.get((sm.number, context), 0)
    roles = [index for index, role in enumerate(program.roles) for _ in range(role.warps)]
    scopes = {"subpartition": machine.subpartitions, "sm": 1}
    busy = {name: sum(sm.pipes.busy[name] for sm in sms) / TICKS_PER_CYCLE for name in machine.pipes}
    tensor = sum(sm.matrix.busy + sm.weft_matrix.busy / machine.subpartitions for sm in sms) / TICKS_PER_CYCLE
    memory = chip.memory
    return SimResult(
        cycles=chip.end,
        sm_cycles=len(sms) * chip.end,
        warp_instructions=chip.issued,
        stalls=stalls,
        warp_role=np.array(roles * chip.setup.slots * len(sms), dtype=np.int64),
        stalls_pc=chip.stalls_pc,
        pipe_busy=busy,
        pipe_instances={name: len(sms) * scopes[pipe.scope] for name, pipe in machine.pipes.items()},
        tensor_busy_cycles=tensor + busy.get("tensor", 0.0) / machine.subpartitions,
        issue_slots_used=chip.issued,
        active_warp_cycles=int(stalls.sum()),
        dram_read_bytes=memory.dram_read_bytes,
        dram_write_bytes=memory.dram_write_bytes,
        l2_read_bytes=memory.l2_read_bytes,
        l2_write_bytes=memory.l2_write_bytes,
        shared_bytes=sum(sm.shared.bytes for sm in sms),
        simulated_sms=len(sms),
        clock_mhz=clock_mhz,
        mode=chip.setup.mode,
        log=chip.log.array(),
        fiber=_fiber_counts(chip) if program.mode == "fiber" else None,
        warnings=chip.warnings,
    )
