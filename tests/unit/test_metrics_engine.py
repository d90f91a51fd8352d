"""Do results of the real engine explain themselves, and do their logs become traces and right numbers?"""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heddle import sim
from heddle.interp import check
from heddle.ir.warp import WarpProgram
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.metrics import METRICS, by_instruction, by_line, result_json
from heddle.metrics.diff import flatten
from heddle.metrics.read_ports import read_ports
from heddle.passes import compile_program
from heddle.sim.result import EventKind, SimResult, Stall
from heddle.trace import read_trace, write_trace

GPUS = ("a100", "h100", "b200")
PROBLEM: dict[str, Any] = {"m": 264, "n": 200, "k": 264, "dtype": "fp16"}
GEMM = find_kernel("gemm")


@cache
def ran(gpu: str) -> tuple[SimResult, WarpProgram]:
    """A small GEMM on the whole chip, every event logged."""
    program = compile_program(GEMM.build(machine(gpu), PROBLEM, None), machine(gpu))
    return sim.simulate(program, machine(gpu), mode="chip", log="all", fast_forward=False, l2_state="cold"), program


@pytest.mark.parametrize("gpu", GPUS)
def test_accounts_of_a_real_run_sum_to_one(gpu: str) -> None:
    result, program = ran(gpu)
    document = result_json(result, program, machine(gpu), profile=True)
    assert math.isclose(math.fsum(document["stalls"].values()), 1.0, abs_tol=1e-12)
    for rows in (by_line(result, program), by_instruction(result, program)):
        assert sum(row["warp_cycles"] for row in rows) == result.active_warp_cycles  # type: ignore[misc]
    assert 0 < document["tensor_utilization"] <= document["pipes"]["tensor"] <= 1
    assert document["instructions"]["total"] == sum(document["instructions"]["by_pipe"].values())


def test_read_ports_are_counted_where_products_take_a_share() -> None:
    shares = {gpu: result_json(*ran(gpu), machine(gpu))["read_ports"] for gpu in ("a100", "h100")}
    assert not shares["a100"]
    assert shares["h100"]["products"] == pytest.approx(
        machine("h100").tensor_port_share * ran("h100")[0].tensor_busy_cycles / ran("h100")[0].sm_cycles
    )


def test_an_instruction_takes_a_port_cycle_for_each_register_that_it_reads() -> None:
    result, program = ran("h100")
    pc = next(pc for pc, row in enumerate(program.instructions) if row.op == "F2FP")
    sources = {(r.index + i) for r in program.instructions[pc].src for i in range(r.count)}
    stalls = np.zeros_like(result.stalls_pc)
    stalls[pc, Stall.SELECTED] = 80
    shares = read_ports(dataclasses.replace(result, stalls_pc=stalls), program, machine("h100"))
    assert shares["instructions"] == pytest.approx(80 * len(sources) / (result.sm_cycles * 4 * 2))


@pytest.mark.parametrize("gpu", GPUS)
def test_a_real_run_computes_right_numbers_without_hazards(gpu: str) -> None:
    result, program = ran(gpu)
    inputs, expected = GEMM.reference(PROBLEM, 0)
    report = check(program, machine(gpu), inputs, expected, result=result)
    assert report.ok, "\n".join(report.lines())


@pytest.mark.parametrize("gpu", GPUS)
def test_a_real_log_becomes_a_trace(gpu: str, tmp_path: Path) -> None:
    result, program = ran(gpu)
    write_trace(result, program, machine(gpu), tmp_path / "t.pftrace")
    tracks, _ = read_trace(tmp_path / "t.pftrace")
    assert result.log is not None
    log = result.log[result.log["sm"] < program.cluster_size]
    drawn = sum("pc" in p.details for t in tracks if t.path[-1].startswith("warp") for p in t.slices)
    assert drawn == int((log["kind"] == EventKind.ISSUE).sum())
    matrix = [t for t in tracks if t.path[1:2] == ("units",) and t.path[-1].startswith("tensor")]
    assert sum(len(t.slices) for t in matrix) > 0


def test_every_counter_of_the_registry_is_used_somewhere() -> None:
    seen: dict[str, float] = {}
    for gpu in GPUS:
        result, program = ran(gpu)
        for path, value in flatten(result_json(result, program, machine(gpu))):
            seen[path] = max(seen.get(path, 0.0), value)
    never = {name for name, value in seen.items() if name in METRICS and value == 0}
    # A small GEMM without split-K, in one wave, has no reason to stall in these ways.
    assert never <= {f"stalls.{name}" for name in ("semaphore", "drain", "no_instruction", "lg_throttle")} | {
        "traffic.dram_write_bytes",
        "stalls.dispatch_stall",
        "stalls.matrix_scoreboard",
    }


def test_a_barrier_removed_from_the_kernel_is_reported_with_its_lines() -> None:
    _, program = ran("h100")
    pc = next(pc for pc, i in enumerate(program.instructions) if i.op == "FENCE" and i.source)
    rows = list(program.instructions)
    rows[pc] = dataclasses.replace(rows[pc], op="NOP")
    broken = dataclasses.replace(program, instructions=tuple(rows))
    inputs, expected = GEMM.reference(PROBLEM, 0)
    report = check(broken, machine("h100"), inputs, expected)
    assert not report.ok
    assert "StoreShared" in report.hazards[0].text
    assert "TmaStore" in report.hazards[0].text
