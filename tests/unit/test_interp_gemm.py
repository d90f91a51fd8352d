"""Do the real GEMM kernels compute right numbers under any legal schedule, and is each missing barrier reported?

The machines have four SMs here, so that every persistent CTA works on several tiles.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest

from heddle.errors import UserError
from heddle.interp import CheckReport, check
from heddle.interp.schedule import random_schedule
from heddle.ir.warp import WarpProgram
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.passes import compile_program
from heddle.sim.result import SimResult, Stall

SMALL = {"m": 136, "n": 72, "k": 328}  # for A100, whose warps move fragments one by one
SIZES = {"m": 264, "n": 328, "k": 448}
GEMM = find_kernel("gemm")


def problem(gpu: str, dtype: str) -> dict[str, Any]:
    """Parameters whose tiles stick out of every tensor."""
    return {**(SMALL if gpu == "a100" else SIZES), "dtype": dtype}


@cache
def compiled(gpu: str, dtype: str = "fp16", stages: int = 3) -> WarpProgram:
    """The first configuration without split-K, with few stages so that the ring wraps."""
    few = machine(gpu).replace(sms=4)
    params = problem(gpu, dtype)
    config = next(c for c in GEMM.candidates(few, params) if c.split_k == 1)
    return compile_program(GEMM.build(few, params, dataclasses.replace(config, stages=stages)), few)


def as_result(log: np.ndarray) -> SimResult:
    """A result that holds nothing but a log."""
    nothing = np.zeros((0, len(Stall)), np.int64)
    return SimResult(
        cycles=int(log["end"].max()),
        sm_cycles=0,
        warp_instructions=0,
        stalls=nothing,
        warp_role=np.zeros(0, np.int64),
        stalls_pc=nothing,
        pipe_busy={},
        pipe_instances={},
        tensor_busy_cycles=0.0,
        issue_slots_used=0,
        active_warp_cycles=0,
        dram_read_bytes=0,
        dram_write_bytes=0,
        l2_read_bytes=0,
        l2_write_bytes=0,
        shared_bytes=0,
        simulated_sms=1,
        log=log,
    )


def report(program: WarpProgram, gpu: str, seed: int, dtype: str = "fp16") -> CheckReport:
    """Execute a program under one random schedule."""
    inputs, expected = GEMM.reference(problem(gpu, dtype), 0)
    return check(program, machine(gpu), inputs, expected, result=as_result(random_schedule(program, seed)))


def without(program: WarpProgram, op: str, operation: str, nth: int = 0) -> tuple[WarpProgram, int]:
    """Replace the nth instruction of this op and tile operation by a NOP; returns the program and the source line."""
    found = [
        pc
        for pc, i in enumerate(program.instructions)
        if i.op == op and program.sources[i.source].operation == operation
    ]
    pc = found[nth]
    old = program.instructions[pc]
    rows = list(program.instructions)
    rows[pc] = dataclasses.replace(old, op="NOP", barrier=None, effect=None, dst=None, src=())
    return dataclasses.replace(program, instructions=tuple(rows)), program.sources[old.source].line


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
@pytest.mark.parametrize("seed", [1, 2])
def test_numbers_are_right_under_random_schedules(gpu: str, seed: int) -> None:
    found = report(compiled(gpu), gpu, seed)
    assert found.ok, "\n".join(found.lines())


@pytest.mark.parametrize(("gpu", "dtype"), [("h100", "bf16"), ("b200", "bf16"), ("h100", "fp8_e4m3")])
def test_other_types_are_within_their_tolerance(gpu: str, dtype: str) -> None:
    found = report(compiled(gpu, dtype), gpu, 1, dtype)
    assert found.ok, "\n".join(found.lines())


@pytest.mark.parametrize(
    ("gpu", "op", "operation"),
    [
        ("a100", "DEPBAR", "CpAsyncWait"),
        ("a100", "BAR.SYNC", "Sync"),
        ("h100", "SYNCS.TRYWAIT", "Wait"),
        ("h100", "WARPGROUP.DEPBAR", "MmaWait"),
        ("h100", "UTMADEPBAR", "TmaStoreWait"),
        ("h100", "FENCE", "Fence"),
        ("b200", "UTMADEPBAR", "TmaStoreWait"),
        ("b200", "FENCE", "Fence"),
    ],
)
def test_a_removed_wait_is_reported(gpu: str, op: str, operation: str) -> None:
    program, _ = without(compiled(gpu), op, operation)
    found = report(program, gpu, 1)
    assert found.hazards
    assert all(":" in line for line in found.hazards[0].lines)


def test_a_removed_arrival_is_a_deadlock_that_names_the_waiting_warps() -> None:
    program, _ = without(compiled("h100"), "SYNCS.ARRIVE", "Arrive")
    with pytest.raises(UserError, match=r"deadlock: no warp can go on; waiting: SM \d+ warp \d+"):
        random_schedule(program, 1)


def test_a_store_that_nobody_waits_for_at_the_end_is_reported() -> None:
    program = compiled("h100")
    rows = [
        dataclasses.replace(i, op="NOP") if i.op == "UTMADEPBAR" and i.pending == 0 else i for i in program.instructions
    ]
    found = report(dataclasses.replace(program, instructions=tuple(rows)), "h100", 1)
    assert "exit during bulk store" in {hazard.kind for hazard in found.hazards}


@cache
def split(gpu: str) -> WarpProgram:
    """A GEMM whose CTAs share a tile of C along k, ordered by semaphores in global memory."""
    params = {"m": 136, "n": 136, "k": 600, "dtype": "fp16"}
    config = next(c for c in GEMM.candidates(machine(gpu), params) if c.split_k > 1)
    return compile_program(GEMM.build(machine(gpu), params, config), machine(gpu))


def split_report(program: WarpProgram, gpu: str) -> CheckReport:
    """Execute a split GEMM under one random schedule."""
    inputs, expected = GEMM.reference({"m": 136, "n": 136, "k": 600, "dtype": "fp16"}, 0)
    return check(program, machine(gpu), inputs, expected, result=as_result(random_schedule(program, 5)))


@pytest.mark.parametrize("gpu", ["h100", "b200"])
def test_semaphores_order_the_clusters_that_share_a_tile(gpu: str) -> None:
    found = split_report(split(gpu), gpu)
    assert found.ok, "\n".join(found.lines())


def test_a_removed_semaphore_wait_is_reported() -> None:
    program = split("h100")
    rows = [dataclasses.replace(i, op="NOP") if i.op == "SEM.ACQUIRE" else i for i in program.instructions]
    found = split_report(dataclasses.replace(program, instructions=tuple(rows)), "h100")
    assert not found.ok
    assert any("Global" in h.text or "Tma" in h.text for h in found.hazards)


def test_schedules_of_one_seed_are_equal_and_of_two_seeds_differ() -> None:
    program = compiled("b200")
    assert np.array_equal(random_schedule(program, 3), random_schedule(program, 3))
    assert not np.array_equal(random_schedule(program, 3), random_schedule(program, 4))
