"""Is the benchmark's program what its name says, and does the benchmark report speeds?"""

import pytest

from agreement import differences
from heddle.ir.warp_verify import verify
from heddle.machine import machine
from heddle.sim import simulate
from heddle.sim.reference.engine import simulate_reference
from heddle.study import bench
from heddle.study.bench_fiber import weave
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


@pytest.mark.slow
def test_the_speed_counts_every_instruction_and_stands_beside_the_whole_simulation() -> None:
    row = bench._engine("fan", fan(4), DEVICE, "sm", repeats=1)
    assert row["warp_instructions"] == simulate_reference(fan(4), DEVICE, mode="sm").warp_instructions
    assert row["instructions_per_s"] == row["warp_instructions"] / row["loop_cpu_s"]
    assert row["simulate_cpu_s"] > 0


def test_weave_uses_all_that_fiber_adds_and_leaves_no_datum_behind() -> None:
    device = machine("h100+fiber").replace(sms=1)
    verify(weave(3), device)
    result = simulate_reference(weave(3), device, mode="sm")
    counts = result.fiber
    assert counts is not None
    assert min(counts.crossbar_reads, counts.shared_reads, counts.port_denials, counts.bits_set) > 0
    assert any(row.group for row in weave(1).instructions)
    assert result.warnings == []


def test_engines_agree_on_weave() -> None:
    device = machine("h100+fiber").replace(sms=1)
    expected = simulate_reference(weave(3), device, mode="sm")
    assert not differences(expected, simulate(weave(3), device, mode="sm"))
