"""Theoretical and achieved occupancy. The rule for how many CTAs fit is the simulator's own (`heddle.sim.launch`)."""

from __future__ import annotations

from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.launch_occupancy import Occupancy, occupancy
from heddle.sim.result import SimResult

__all__ = ["Occupancy", "achieved", "contexts", "occupancy", "theoretical"]


def contexts(program: WarpProgram, machine: Machine) -> int:
    """Return the warps, or in mode fiber the wefts, that an SM can hold at one time."""
    if program.mode == "fiber":
        return machine.max_wefts_per_subpartition * machine.subpartitions
    return machine.max_warps_per_sm


def theoretical(program: WarpProgram, machine: Machine) -> float:
    """Return the warps of the CTAs that fit on an SM over its warp contexts."""
    return occupancy(program, machine).warps_per_sm / contexts(program, machine)


def achieved(result: SimResult, program: WarpProgram, machine: Machine) -> float:
    """Return resident warp cycles over all warp contexts of the simulated SMs."""
    possible = contexts(program, machine) * result.simulated_sms * max(1, result.cycles)
    return result.active_warp_cycles / possible
