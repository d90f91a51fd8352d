"""How many CTAs fit on an SM and what limits them; achieved occupancy of a run."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.result import SimResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """CTAs that fit on one SM by each resource (`limits`), their minimum, and the resident warps that this gives."""

    limits: dict[str, int]
    ctas_per_sm: int
    warps_per_sm: int
    theoretical: float  # share of the SM's warp contexts

    @property
    def limited_by(self) -> str:
        """Name of the resource that is used up first."""
        return min(self.limits, key=lambda name: self.limits[name])


def registers_per_cta(program: WarpProgram, machine: Machine) -> int:
    """Vector registers that a CTA takes: each role's registers a thread, rounded up to the unit, times its warps."""
    unit = machine.register_allocation_unit
    return sum(-(-role.registers_per_thread // unit) * unit * role.warps for role in program.roles)


def occupancy(program: WarpProgram, machine: Machine) -> Occupancy:
    """Return the theoretical occupancy of a program on a machine; resources that it does not use set no limit."""
    shared = program.shared_memory_bytes + machine.shared_memory_reserved_bytes_per_cta
    limits = {
        "ctas": machine.max_ctas_per_sm,
        "warps": machine.max_warps_per_sm // max(1, program.warps_per_cta),
    }
    if shared:
        limits["shared_memory"] = machine.shared_memory_bytes // shared
    if registers := registers_per_cta(program, machine):
        limits["registers"] = machine.vector_registers // registers
    if program.tensor_memory_columns:
        limits["tensor_memory"] = machine.tensor_memory_columns // program.tensor_memory_columns
    ctas = min(limits.values())
    warps = ctas * program.warps_per_cta
    return Occupancy(limits=limits, ctas_per_sm=ctas, warps_per_sm=warps, theoretical=warps / machine.max_warps_per_sm)


def achieved(result: SimResult, machine: Machine) -> float:
    """Return resident warp cycles over all warp contexts of the simulated SMs."""
    contexts = machine.max_warps_per_sm * result.simulated_sms * max(1, result.cycles)
    return result.active_warp_cycles / contexts
