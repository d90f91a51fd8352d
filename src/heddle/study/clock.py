"""The clock that a chip runs at: published runs are limited by power, so the clock falls with tensor use and duration.

Model (three fitted values a GPU at most: `clock_burst_mhz`, `clock_sustained_mhz`, `clock_time_constant_ms`). At full
tensor use the power controller lowers the clock from the burst to the sustained value as exp(-t / time constant); a
kernel after a rest sees the mean over its duration, one in a warm back-to-back loop sees the sustained value. Between
no tensor use (`max_clock_mhz`) and full use the clock is linear in tensor use. Explained in docs/explanation/clock.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from heddle.machine.spec import Machine

STEP_MHZ = 5.0  # clocks are rounded to this, so that stored results of near clocks are shared
TOLERANCE = 0.01  # the clock is settled when another simulation would move it by less
MAX_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class AtClock:
    """What the clock model needs to know of a simulation: its length and its tensor use."""

    cycles: int
    tensor_utilization: float


def full_use_clock_mhz(machine: Machine, duration_ms: float, *, rested: bool) -> float:
    """Return the mean clock at full tensor use over a kernel of this duration, after a rest or back to back."""
    burst, sustained = machine.clock_burst_mhz, machine.clock_sustained_mhz
    if not rested:
        return sustained
    x = duration_ms / machine.clock_time_constant_ms
    still_high = -math.expm1(-x) / x if x > 0 else 1.0  # mean of exp(-t / time constant) over the kernel
    return sustained + (burst - sustained) * still_high


def clock_mhz(machine: Machine, tensor_utilization: float, duration_ms: float, *, rested: bool) -> float:
    """Return the mean clock of a kernel, in steps of `STEP_MHZ` and within the machine's maximum."""
    low = full_use_clock_mhz(machine, duration_ms, rested=rested)
    share = min(max(tensor_utilization, 0.0), 1.0)
    clock = machine.max_clock_mhz - share * (machine.max_clock_mhz - low)
    return min(round(clock / STEP_MHZ) * STEP_MHZ, machine.max_clock_mhz)


def settle(
    machine: Machine, simulate: Callable[[float], AtClock], *, rested: bool, first_mhz: float | None = None
) -> float:
    """Return the clock at which simulating and deriving the clock agree within `TOLERANCE`, tried first at `first_mhz`.

    Cycles depend on the clock (DRAM is fixed in ns), tensor use on cycles, the clock on tensor use: a contraction,
    since a higher clock costs cycles where DRAM limits and so lowers tensor use.
    """
    clock = first_mhz or clock_mhz(machine, 1.0, 0.0, rested=rested)
    for _ in range(MAX_ROUNDS):
        seen = simulate(clock)
        duration_ms = seen.cycles / clock / 1e3
        derived = clock_mhz(machine, seen.tensor_utilization, duration_ms, rested=rested)
        if abs(derived - clock) <= TOLERANCE * clock:
            return clock
        clock = derived
    return clock
