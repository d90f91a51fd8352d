"""Does a result explain itself: do accounts sum to one, are shares possible, is what is not modelled absent?"""

from __future__ import annotations

import dataclasses
import json
import math

import interp_logs as tiny
import numpy as np
import pytest

from heddle.errors import InternalError, UserError
from heddle.ir.warp import Instruction, Register
from heddle.machine import machine
from heddle.metrics import (
    METRICS,
    by_instruction,
    by_line,
    diff,
    metric,
    occupancy,
    register_profile,
    result_json,
    roofline,
    speed_of_light,
)
from heddle.metrics._pipes import is_matrix
from heddle.metrics.diff import flatten
from heddle.metrics.occupancy import contexts
from heddle.metrics.provenance import machine_hash, program_hash
from heddle.metrics.stalls import cycles_by_role
from heddle.metrics.synchronisation import synchronisation
from heddle.sim.result import SimResult, Stall

H100 = machine("h100")


def ran() -> SimResult:
    """A result of the tiny product."""
    return tiny.result(tiny.run())


def test_result_is_json_with_the_stable_fields() -> None:
    document = json.loads(json.dumps(result_json(ran(), tiny.program(), H100, wall_s=1.0, profile=True)))
    stable = {"kernel", "gpu", "mode", "params", "clock_mhz", "cycles", "time_us", "tflops", "tensor_utilization"}
    stable |= {"ceiling_speedup", "pipes", "issue_utilization", "occupancy", "stalls", "stalls_by_role", "traffic"}
    stable |= {"instructions", "registers", "simulation", "provenance", "by_line", "by_instruction"}
    assert stable <= set(document)
    assert {"dram_bytes", "l2_bytes", "smem_bytes"} <= set(document["traffic"])
    assert {"peak_live", "allocated"} <= set(document["registers"])
    assert {"tensor", "fp32", "int", "sfu", "lsu", "tma"} <= set(document["pipes"])
    assert {"total", "by_pipe"} <= set(document["instructions"])
    assert {"warp_instructions", "wall_s", "instructions_per_s", "fast_forwarded"} <= set(document["simulation"])


def test_the_common_names_of_pipes_are_those_of_the_machine() -> None:
    result = ran()
    result.pipe_busy, result.pipe_instances = {"fma": 3.0, "alu": 2.0}, {"fma": 1, "alu": 1}
    pipes = result_json(result, tiny.program(), H100)["pipes"]
    assert pipes["fp32"] == pipes["fma"] > pipes["int"] == pipes["alu"] > pipes["tma"] == 0


def test_stall_shares_sum_to_one() -> None:
    document = result_json(ran(), tiny.program(), H100)
    assert math.isclose(math.fsum(document["stalls"].values()), 1.0, abs_tol=1e-12)
    for shares in document["stalls_by_role"].values():
        assert math.isclose(math.fsum(shares.values()), 1.0, abs_tol=1e-12)


@pytest.mark.parametrize("table", [by_line, by_instruction])
def test_tables_hold_every_warp_cycle(table: object) -> None:
    result = ran()
    rows = table(result, tiny.program())  # type: ignore[operator]
    assert sum(row["warp_cycles"] for row in rows) == result.active_warp_cycles
    assert all(sum(row["stalls"].values()) == row["warp_cycles"] for row in rows)


def test_a_broken_account_is_an_internal_error() -> None:
    result = ran()
    result.stalls[0, Stall.WAIT] += 1
    with pytest.raises(InternalError, match="stall accounts disagree"):
        result_json(result, tiny.program(), H100)


def test_a_pipe_busier_than_possible_is_an_internal_error() -> None:
    result = ran()
    result.tensor_busy_cycles = 2.0 * result.cycles
    with pytest.raises(InternalError, match="pipe 'tensor' is busy"):
        result_json(result, tiny.program(), H100)


def test_more_useful_work_than_the_peak_is_an_internal_error() -> None:
    program = dataclasses.replace(tiny.program(), flops=10**15)
    with pytest.raises(InternalError, match=r"tensor utilization .* is above 1"):
        result_json(ran(), program, H100)


def test_utilization_is_useful_flops_over_the_peak_of_all_sms() -> None:
    result, program = ran(), tiny.program()
    document = result_json(result, program, H100)
    want = program.flops / (result.cycles * H100.tensor_flops_per_cycle * H100.sms)
    assert document["tensor_utilization"] == pytest.approx(want)
    assert document["ceiling_speedup"] == pytest.approx(1 / want)


def test_launch_overhead_counts_only_if_asked() -> None:
    plain = result_json(ran(), tiny.program(), H100, clock_mhz=1000.0)
    launched = result_json(ran(), tiny.program(), H100, clock_mhz=1000.0, includes_launch=True)
    assert plain["time_us"] == ran().cycles / 1000.0
    assert launched["time_us"] - plain["time_us"] == pytest.approx(H100.kernel_launch_us + H100.kernel_drain_us)


def test_an_impossible_clock_is_refused() -> None:
    with pytest.raises(UserError, match="a clock of 0 MHz is not possible"):
        result_json(ran(), tiny.program(), H100, clock_mhz=0)


def test_reasons_of_fiber_are_absent_from_simt_results() -> None:
    assert "pool_empty" not in result_json(ran(), tiny.program(), H100)["stalls"]


def test_every_number_of_a_result_is_in_the_registry() -> None:
    document = result_json(ran(), tiny.program(), H100, wall_s=1.0)
    families = ("pipes.", "stalls_by_role.", "instructions.by_pipe.", "instructions.by_role.", "registers.by_role.")
    for path, _ in flatten(document):
        if not path.startswith(families):
            assert path in METRICS, path


def test_an_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'cycles'"):
        metric("cycle")


def test_every_stall_reason_has_a_meaning() -> None:
    names = ("issued" if reason is Stall.SELECTED else reason.name.lower() for reason in Stall)
    assert all(METRICS[f"stalls.{name}"].meaning for name in names)


def test_diff_compares_number_by_number() -> None:
    a = result_json(ran(), tiny.program(), H100)
    slower = tiny.result(tiny.run(copy_latency=600))
    changes = {c.id: c for c in diff(a, result_json(slower, tiny.program(), H100))}
    assert changes["cycles"].ratio == slower.cycles / a["cycles"]
    assert changes["traffic.dram_bytes"].difference == 0
    assert "provenance.machine_hash" not in changes


def test_hashes_follow_the_content() -> None:
    assert machine_hash(H100) == machine_hash(machine("h100"))
    assert machine_hash(H100) != machine_hash(H100.replace(sms=H100.sms - 1))
    assert program_hash(tiny.program()) == program_hash(tiny.program())
    assert program_hash(tiny.program()) != program_hash(dataclasses.replace(tiny.program(), flops=1))


def test_occupancy_names_the_limit() -> None:
    program = dataclasses.replace(tiny.program(), shared_memory_bytes=100_000)
    found = occupancy(program, H100)
    assert found.ctas_per_sm == 2
    assert found.limited_by == "shared memory"


def test_contexts_of_mode_fiber_are_wefts() -> None:
    wefts = dataclasses.replace(tiny.program(), mode="fiber")
    assert (contexts(tiny.program(), H100), contexts(wefts, machine("h100+fiber"))) == (64, 256)


def test_a_matrix_instruction_of_wefts_counts_as_one() -> None:
    assert is_matrix(Instruction(op="WMMA"))


def test_the_sum_that_a_weft_product_adds_to_is_not_needed_after_it() -> None:
    product = Instruction(op="WMMA", dst=Register(4), src=(Register(0), Register(1), Register(2)))
    profile = register_profile(straight(product))  # type: ignore[arg-type]
    assert profile.live[0] == 4


def test_roofline_of_little_reuse_is_bound_by_memory() -> None:
    place = roofline(ran(), tiny.program(), H100, 1755.0)
    assert place.bound in ("dram", "l2")
    assert place.intensity["dram"] == tiny.program().flops / ((tiny.M + tiny.N) * tiny.K * 2 + tiny.M * tiny.N * 2)
    assert place.achieved_flops_per_cycle <= place.attainable_flops_per_cycle


def test_speed_of_light_has_nsights_rows_in_order() -> None:
    names = [row.name for row in speed_of_light(ran(), tiny.program(), H100, 1755.0)]
    order = ["SM Frequency", "Elapsed Cycles", "Memory Throughput", "DRAM Throughput", "Duration"]
    assert names[: len(order)] == order
    assert names[-1] == "Compute (SM) Throughput"


def straight(*rows: Instruction) -> object:
    """A one-warp program of these instructions and an EXIT."""
    program = tiny.program()
    role = dataclasses.replace(program.roles[1], first_warp=0, entry=0)
    return dataclasses.replace(program, instructions=(*rows, Instruction(op="EXIT")), roles=(role,))


def test_live_registers_of_straight_code() -> None:
    rows = (
        Instruction(op="MOV", dst=Register(0)),
        Instruction(op="MOV", dst=Register(2, 2)),
        Instruction(op="FADD", dst=Register(1), src=(Register(0), Register(2))),
        Instruction(op="FMUL", dst=Register(4), src=(Register(1), Register(3))),
    )
    profile = register_profile(straight(*rows))  # type: ignore[arg-type]
    assert profile.live.tolist() == [1, 3, 4, 3, 0]
    assert profile.peak == 4
    assert profile.share_above(2, "producer") == 3 / 5
    issues = np.array([0, 0, 1, 0, 1])
    assert profile.share_above(2, "producer", issues) == 0.5


def test_a_value_needed_by_the_next_iteration_is_live_through_the_loop() -> None:
    rows = (
        Instruction(op="MOV", dst=Register(0)),
        Instruction(op="MOV", dst=Register(1)),
        Instruction(op="FADD", dst=Register(0), src=(Register(0),)),
        Instruction(op="LOOP", target=1),
    )
    assert register_profile(straight(*rows)).live.tolist() == [1, 2, 1, 1, 0]  # type: ignore[arg-type]


def test_an_accumulator_is_needed_by_the_instruction_that_adds_to_it() -> None:
    rows = (
        Instruction(op="MOV", dst=Register(0, 8)),
        Instruction(op="NOP"),
        Instruction(op="HGMMA", dst=Register(0, 8), shape=(64, 16, 16), dtype="fp16"),
    )
    assert register_profile(straight(*rows)).live.tolist() == [8, 8, 8, 0]  # type: ignore[arg-type]


def test_synchronisation_counts_waits_for_other_warps_and_weighs_roles_by_what_they_issue() -> None:
    result, program = ran(), tiny.program()
    found = synchronisation(result, program)
    cycles = cycles_by_role(result, program)
    waits = {role: int(row[Stall.BARRIER] + row[Stall.MBARRIER]) for role, row in cycles.items()}
    issued = sum(int(row[Stall.SELECTED]) for row in cycles.values())
    assert sum(waits.values()) > 0
    assert found["share"] == sum(waits.values()) / sum(int(row.sum()) for row in cycles.values())
    weighted = sum(waits[role] / int(row.sum()) * int(row[Stall.SELECTED]) for role, row in cycles.items())
    assert found["by_issue"] == pytest.approx(weighted / issued)


def test_waits_for_own_matrix_products_are_no_synchronisation() -> None:
    result, program = ran(), tiny.program()
    before = synchronisation(result, program)["share"]
    assert isinstance(before, float)
    result.stalls[:, Stall.GMMA] += result.stalls[:, Stall.MBARRIER]
    result.stalls[:, Stall.MBARRIER] = 0
    assert synchronisation(result, program)["share"] < before
