"""Does the clock model give the limits it is defined by, and does settling reach a fixed point?"""

from types import SimpleNamespace
from typing import cast

import pytest

from heddle.machine.spec import Machine
from heddle.study.clock import AtClock, clock_mhz, full_use_clock_mhz, settle

MACHINE = cast(
    Machine,
    SimpleNamespace(
        max_clock_mhz=1980.0, clock_burst_mhz=1700.0, clock_sustained_mhz=1400.0, clock_time_constant_ms=5.0
    ),
)


def test_a_short_rested_kernel_at_full_use_runs_at_the_burst_clock() -> None:
    assert full_use_clock_mhz(MACHINE, 1e-6, rested=True) == pytest.approx(1700.0)


def test_a_long_kernel_at_full_use_runs_at_the_sustained_clock() -> None:
    assert full_use_clock_mhz(MACHINE, 1e6, rested=True) == pytest.approx(1400.0, rel=1e-3)


def test_after_one_time_constant_the_mean_has_lost_a_share_of_1_over_e() -> None:
    assert full_use_clock_mhz(MACHINE, 5.0, rested=True) == pytest.approx(1400.0 + 300.0 * (1 - 0.36787944))


def test_a_back_to_back_loop_runs_at_the_sustained_clock_however_short() -> None:
    assert clock_mhz(MACHINE, 1.0, 1e-3, rested=False) == 1400.0


def test_without_tensor_use_the_clock_is_the_maximum() -> None:
    assert clock_mhz(MACHINE, 0.0, 100.0, rested=False) == 1980.0


def test_between_no_and_full_use_the_clock_is_linear() -> None:
    assert clock_mhz(MACHINE, 0.5, 1.0, rested=False) == 1690.0


def test_clocks_come_in_steps() -> None:
    assert clock_mhz(MACHINE, 0.501, 1.0, rested=False) % 5 == 0


def test_the_settled_clock_agrees_with_its_own_simulation() -> None:
    def simulate(clock: float) -> AtClock:
        cycles = 1_000_000 + int(200 * clock)  # a part limited by DRAM grows with the clock
        return AtClock(cycles, 900_000 / cycles)

    clock = settle(MACHINE, simulate, rested=True)
    seen = simulate(clock)
    derived = clock_mhz(MACHINE, seen.tensor_utilization, seen.cycles / clock / 1e3, rested=True)
    assert derived == pytest.approx(clock, rel=0.01)


def test_a_kernel_without_tensor_use_settles_at_the_maximum() -> None:
    assert settle(MACHINE, lambda clock: AtClock(10_000, 0.0), rested=True) == 1980.0
