"""Is the benchmark's program what its name says, and does the benchmark report speeds?"""

import pytest

from heddle.machine import machine
from heddle.sim.reference.engine import simulate_reference
from heddle.study import bench
from heddle.study.bench_programs import MATRIX_INSTRUCTIONS, fan

DEVICE = machine("h100").replace(tensor_port_share=0.0)


def test_fan_has_a_thousand_other_instructions_for_64_matrix_ones() -> None:
    ops = [instruction.op for instruction in fan(1).instructions]
    matrix = ops.count("HGMMA")
    assert (matrix, 1000 <= len(ops) - matrix <= 1010) == (MATRIX_INSTRUCTIONS, True)


def test_fan_issues_more_than_two_instructions_a_cycle_in_its_steady_state() -> None:
    one, two = (simulate_reference(fan(n), DEVICE, mode="sm") for n in (1, 2))
    rate = (two.warp_instructions - one.warp_instructions) / (two.cycles - one.cycles)
    assert rate == pytest.approx(2.3, abs=0.2)


def test_the_speed_counts_every_instruction_and_stands_beside_the_whole_simulation() -> None:
    row = bench._engine("fan", fan(4), DEVICE, "sm", repeats=1)
    assert row["warp_instructions"] == simulate_reference(fan(4), DEVICE, mode="sm").warp_instructions
    assert row["instructions_per_s"] == row["warp_instructions"] / row["loop_cpu_s"]
    assert row["simulate_cpu_s"] > 0
