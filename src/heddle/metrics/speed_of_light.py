"""The speed-of-light table: how near each unit of the chip is to its peak, in the row order of Nsight Compute.

Rows that the model does not produce (L1/TEX cache throughput, DRAM frequency) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.metrics._pipes import pipe_utilization
from heddle.metrics.shared_memory import busy_cycles
from heddle.metrics.stalls import stalls_total, top_reasons
from heddle.sim.result import SimResult

_HIGH_SHARE = 0.8  # Nsight's rule of thumb: above it, a unit counts as the limit
_LOW_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Row:
    """One row: metric name, unit and value."""

    name: str
    unit: str
    value: float


def throughputs(result: SimResult, program: WarpProgram, machine: Machine, clock_mhz: float) -> dict[str, float]:
    """Return achieved over peak for dram, l2, shared memory and compute, shares of the whole run.

    Shared memory: the time that its accesses are charged, which is less than their bytes take where copies land.
    """
    cycles = max(1, result.cycles)
    dram = (result.dram_read_bytes + result.dram_write_bytes) / (cycles * machine.dram_bytes_per_cycle(clock_mhz))
    l2 = (result.l2_read_bytes + result.l2_write_bytes) / (cycles * machine.l2_bytes_per_cycle_per_sm * machine.sms)
    shared = busy_cycles(result, program, machine) / (cycles * max(1, result.simulated_sms))
    issue = result.issue_slots_used / (cycles * machine.subpartitions * max(1, result.simulated_sms))
    compute = max(issue, *(share for name, share in pipe_utilization(result).items() if name not in ("lsu", "tma")))
    return {"dram": dram, "l2": l2, "shared": shared, "compute": compute}


def speed_of_light(result: SimResult, program: WarpProgram, machine: Machine, clock_mhz: float) -> list[Row]:
    """Return the rows of the table, shares in per cent."""
    share = throughputs(result, program, machine, clock_mhz)
    memory = max(share["dram"], share["l2"], share["shared"])
    return [
        Row("SM Frequency", "Ghz", clock_mhz / 1e3),
        Row("Elapsed Cycles", "cycle", float(result.cycles)),
        Row("Memory Throughput", "%", 100 * memory),
        Row("DRAM Throughput", "%", 100 * share["dram"]),
        Row("Duration", "us", result.cycles / clock_mhz),
        Row("Shared Memory Throughput", "%", 100 * share["shared"]),
        Row("L2 Cache Throughput", "%", 100 * share["l2"]),
        Row("Compute (SM) Throughput", "%", 100 * share["compute"]),
    ]


def verdict(result: SimResult, program: WarpProgram, machine: Machine, clock_mhz: float) -> str:
    """Return one sentence on what limits the kernel: a unit near its peak, or the largest stall reasons."""
    share = throughputs(result, program, machine, clock_mhz)
    name, best = max(share.items(), key=lambda pair: pair[1])
    if best >= _HIGH_SHARE:
        return f"{name} works at {best:.0%} of its peak: the kernel is limited by it."
    reasons = ", ".join(f"{reason} {part:.0%}" for reason, part in top_reasons(stalls_total(result)))
    kind = "latency and synchronisation" if best < _LOW_SHARE else "a mix of throughput and latency"
    return f"No unit is above {best:.0%} ({name}): limited by {kind}; largest stall reasons: {reasons or 'none'}."
