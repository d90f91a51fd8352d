"""Roofline position of a run: arithmetic intensity against DRAM and L2, the attainable rate, and which roof is hit."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.metrics._pipes import matrix_dtype
from heddle.sim.result import SimResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Intensities in FLOP/byte; rates in FLOP a cycle of the whole chip. A level without traffic is absent."""

    intensity: dict[str, float]  # dram, l2
    roofs: dict[str, float]  # tensor, and bandwidth * intensity of each memory level
    achieved_flops_per_cycle: float

    @property
    def attainable_flops_per_cycle(self) -> float:
        """Lowest roof at this intensity."""
        return min(self.roofs.values())

    @property
    def bound(self) -> str:
        """Name of the lowest roof: "tensor", "dram" or "l2"."""
        return min(self.roofs, key=lambda name: self.roofs[name])

    @property
    def share_of_attainable(self) -> float:
        """Achieved rate over the attainable one."""
        attainable = self.attainable_flops_per_cycle
        return self.achieved_flops_per_cycle / attainable if attainable else 0.0


def roofline(result: SimResult, program: WarpProgram, machine: Machine, clock_mhz: float) -> Roofline:
    """Place a run under the roofs of its machine at an SM clock in MHz."""
    scale = machine.tensor_rate_scale.get(matrix_dtype(program), 1.0)
    traffic = {
        "dram": result.dram_read_bytes + result.dram_write_bytes,
        "l2": result.l2_read_bytes + result.l2_write_bytes,
    }
    bandwidth = {
        "dram": machine.dram_bytes_per_cycle(clock_mhz),
        "l2": machine.l2_bytes_per_cycle_per_sm * machine.sms,
    }
    intensity = {level: program.flops / moved for level, moved in traffic.items() if moved}
    roofs = {"tensor": machine.tensor_flops_per_cycle * scale * machine.sms}
    roofs |= {level: flops_per_byte * bandwidth[level] for level, flops_per_byte in intensity.items()}
    return Roofline(intensity=intensity, roofs=roofs, achieved_flops_per_cycle=program.flops / max(1, result.cycles))
