"""The result JSON of a run, as `heddle run --json` prints it (docs/reference/results.md)."""

from __future__ import annotations

import dataclasses
from typing import Any

from heddle.errors import InternalError, UserError
from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.metrics import _pipes, provenance, stalls
from heddle.metrics.occupancy import achieved, theoretical
from heddle.metrics.read_ports import read_ports
from heddle.metrics.registers import register_profile
from heddle.metrics.roofline import roofline
from heddle.metrics.speed_of_light import speed_of_light, verdict
from heddle.metrics.supply import supply
from heddle.metrics.synchronisation import synchronisation
from heddle.sim.result import SimResult


def tensor_utilization(result: SimResult, program: WarpProgram, machine: Machine) -> float:
    """Return useful FLOPs over the peak of all SMs' matrix units in the same time; above one raises InternalError."""
    dtype = _pipes.matrix_dtype(program)
    if not dtype:
        return 0.0
    peak = machine.tensor_flops_per_cycle * machine.tensor_rate_scale.get(dtype, 1.0) * machine.sms
    share = program.flops / (max(1, result.cycles) * peak)
    if share > 1.0:
        raise InternalError(f"{program.name}: tensor utilization {share:.4f} is above 1 ({result.cycles} cycles)")
    return share


def duration_us(result: SimResult, machine: Machine, clock_mhz: float, *, includes_launch: bool) -> float:
    """Return the time of the kernel in microseconds, with the machine's launch and drain times if asked."""
    if clock_mhz <= 0:
        raise UserError(f"a clock of {clock_mhz} MHz is not possible", hint="give a positive clock in MHz")
    launch = machine.kernel_launch_us + machine.kernel_drain_us if includes_launch else 0.0
    return result.cycles / clock_mhz + launch


def result_json(
    result: SimResult,
    program: WarpProgram,
    machine: Machine,
    *,
    kernel: str = "",
    clock_mhz: float | None = None,
    clock_source: str = "",
    includes_launch: bool = False,
    wall_s: float | None = None,
    profile: bool = False,
) -> dict[str, Any]:
    """Return the result of a run as plain JSON data, all derived values computed.

    `clock_mhz` defaults to the result's own clock, then to the machine's maximum; `clock_source` says where it came
    from. `profile` adds `by_line`, `by_instruction` and `registers.live_profile`. Raises InternalError where an account
    does not add up or a share is above one.
    """
    stalls.check_law(result)
    clock, source = _clock(result, machine, clock_mhz, clock_source)
    time_us = duration_us(result, machine, clock, includes_launch=includes_launch)
    document = {
        "kernel": kernel or program.name,
        "gpu": machine.name,
        "mode": program.mode,
        "params": dict(sorted(program.params.items())),
        "clock_mhz": clock,
        "cycles": result.cycles,
        "time_us": time_us,
        "includes_launch": includes_launch,
        "tflops": program.flops / time_us / 1e6,
        **_tensor_use(result, program, machine),
        **_shares(result, program, machine),
        "traffic": _traffic(result),
        "supply": supply(result, program, machine),
        **_against_peaks(result, program, machine, clock),
        "instructions": _instructions(result, program, machine),
        "registers": _registers(result, program, profile),
        "simulation": _simulation(result, wall_s),
        "provenance": _provenance(program, machine, source),
    }
    return document | _profile(result, program) if profile else document


def _tensor_use(result: SimResult, program: WarpProgram, machine: Machine) -> dict[str, float | None]:
    use = tensor_utilization(result, program, machine)
    return {"tensor_utilization": use, "ceiling_speedup": 1.0 / use if use else None}


def _shares(result: SimResult, program: WarpProgram, machine: Machine) -> dict[str, Any]:
    """Return what share of its time each unit, port and warp spends on what."""
    return {
        "pipes": _pipes.pipes_row(result),
        "read_ports": read_ports(result, program, machine),
        "issue_utilization": _issue_utilization(result, machine),
        "occupancy": achieved(result, program, machine),
        "occupancy_theoretical": theoretical(program, machine),
        "stalls": stalls.stalls_total(result),
        "stalls_by_role": stalls.stalls_by_role(result, program),
    }


def _against_peaks(result: SimResult, program: WarpProgram, machine: Machine, clock: float) -> dict[str, Any]:
    return {
        "speed_of_light": [dataclasses.asdict(row) for row in speed_of_light(result, program, machine, clock)],
        "roofline": _roofline(result, program, machine, clock),
        "verdict": verdict(result, program, machine, clock),
    }


def _instructions(result: SimResult, program: WarpProgram, machine: Machine) -> dict[str, Any]:
    return {
        "total": result.warp_instructions,
        "by_pipe": _pipes.instructions_by_pipe(result, program, machine),
        "by_role": stalls.issues_by_role(result, program),
    }


def _profile(result: SimResult, program: WarpProgram) -> dict[str, Any]:
    return {
        "by_line": stalls.by_line(result, program),
        "by_instruction": stalls.by_instruction(result, program),
        "synchronisation": synchronisation(result, program),
    }


def _clock(result: SimResult, machine: Machine, clock_mhz: float | None, source: str) -> tuple[float, str]:
    if clock_mhz is not None:
        return clock_mhz, source or "given"
    if result.clock_mhz:
        return result.clock_mhz, source or "the clock that the simulation assumed"
    return machine.max_clock_mhz, source or "max_clock_mhz of the machine"


def _issue_utilization(result: SimResult, machine: Machine) -> float:
    slots = machine.subpartitions * result.simulated_sms * max(1, result.cycles)
    share = result.issue_slots_used / slots
    if share > 1.0:
        raise InternalError(f"{result.issue_slots_used} instructions issued in {slots} issue slots")
    return share


def _traffic(result: SimResult) -> dict[str, int]:
    return {
        "dram_bytes": result.dram_read_bytes + result.dram_write_bytes,
        "dram_read_bytes": result.dram_read_bytes,
        "dram_write_bytes": result.dram_write_bytes,
        "l2_bytes": result.l2_read_bytes + result.l2_write_bytes,
        "l2_read_bytes": result.l2_read_bytes,
        "l2_write_bytes": result.l2_write_bytes,
        "smem_bytes": result.shared_bytes,
    }


def _roofline(result: SimResult, program: WarpProgram, machine: Machine, clock_mhz: float) -> dict[str, Any]:
    place = roofline(result, program, machine, clock_mhz)
    return {
        "intensity": place.intensity,
        "roofs_flops_per_cycle": place.roofs,
        "achieved_flops_per_cycle": place.achieved_flops_per_cycle,
        "attainable_flops_per_cycle": place.attainable_flops_per_cycle,
        "share_of_attainable": place.share_of_attainable,
        "bound": place.bound,
    }


def _registers(result: SimResult, program: WarpProgram, profile: bool) -> dict[str, Any]:
    live = register_profile(program)
    section: dict[str, Any] = {
        "peak_live": live.peak,
        "allocated": max(live.allocated.values(), default=0),
        "by_role": {
            role: {"peak_live": live.peak_of(role), "allocated": live.allocated[role]} for role in live.allocated
        },
    }
    if program.fiber is not None:
        section["pool"] = live.pool
    if profile:
        issues = _pipes.issues_by_pc(result)
        section["live_profile"] = {
            role: {str(n): live.share_above(n, role, issues) for n in range(0, live.peak_of(role) + 1, 8)}
            for role in live.allocated
        }
    return section


def _simulation(result: SimResult, wall_s: float | None) -> dict[str, Any]:
    section: dict[str, Any] = {
        "mode": result.mode,
        "simulated_sms": result.simulated_sms,
        "warp_instructions": result.warp_instructions,
        "fast_forwarded": min(1.0, result.fast_forwarded_cycles / max(1, result.cycles)),
    }
    if wall_s is not None:
        section["wall_s"] = wall_s
        section["instructions_per_s"] = result.warp_instructions / wall_s if wall_s > 0 else None
    return section


def _provenance(program: WarpProgram, machine: Machine, clock_source: str) -> dict[str, Any]:
    return {
        "heddle_version": provenance.heddle_version(),
        "machine_hash": provenance.machine_hash(machine),
        "program_hash": provenance.program_hash(program),
        "program": program.name,
        "parameters": dict(sorted(program.params.items())),
        "clock_source": clock_source,
    }
