"""WARPGROUP.SIGNAL: the arrival that the matrix unit makes when the operands of a group's wgmma have been read."""

import dataclasses

import pytest

from agreement import differences
from engine_builder import EXIT, h100, issues, op, program
from heddle.ir.warp import Barrier, BarrierRef, Instruction, WarpProgram
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.pipeline import compile_kernel
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference

DURATION = 2 * 64 * 256 * 16 // 4096  # of m64n256k16 at 4096 FLOPs a cycle
REF = BarrierRef(name="read")
HGMMA = op("HGMMA", shape=(64, 256, 16), form="ss", dtype="fp16")
SIGNAL = op("WARPGROUP.SIGNAL", barrier=REF)
WAIT = op("SYNCS.TRYWAIT", barrier=REF)


def signalled(*instructions: Instruction, arrivals: int = 1, warps: int = 4) -> WarpProgram:
    """Return a program with a barrier of so many arrivals."""
    barrier = Barrier(name="read", count=1, arrivals=arrivals)
    return program(*instructions, EXIT, warps=warps, barriers=(barrier,))


def test_the_arrival_is_when_the_operands_have_been_read() -> None:
    assert issues(signalled(HGMMA, SIGNAL, WAIT))[2] == 1 + DURATION + h100().mbarrier_arrive_cycles


def test_it_is_for_the_products_so_far_not_for_later_ones() -> None:
    assert issues(signalled(HGMMA, SIGNAL, HGMMA, WAIT))[3] == 1 + DURATION + h100().mbarrier_arrive_cycles


def test_without_a_product_it_is_at_once() -> None:
    assert issues(signalled(SIGNAL, WAIT))[1] == h100().mbarrier_arrive_cycles


def test_the_warps_do_not_wait() -> None:
    assert issues(signalled(HGMMA, SIGNAL, op("NOP")))[2] < 10


def test_four_warps_make_one_arrival() -> None:
    twice = signalled(HGMMA, SIGNAL, HGMMA, SIGNAL, WAIT, arrivals=2)
    assert issues(twice)[4] == 1 + 2 * DURATION + h100().mbarrier_arrive_cycles


@pytest.mark.parametrize(
    ("kernel", "params", "pins"),
    [
        ("gemm", {"m": 256, "n": 264, "k": 320}, {"schedule": "pingpong", "cluster": 2}),
        ("attention", {"batch": 1, "heads_q": 1, "seqlen_q": 128, "seqlen_kv": 400}, {}),
    ],
)
def test_engines_agree_on_kernels_that_give_stages_back_early(
    kernel: str, params: dict[str, int], pins: dict[str, str | int]
) -> None:
    small = machine("h100").replace(sms=2)
    found = find_kernel(kernel)
    checked = found.check(params)
    configs = found.candidates(small, checked)
    config = next(c for c in configs if all(getattr(c, name) == value for name, value in pins.items()))
    compiled = compile_kernel(kernel, small, checked, dataclasses.replace(config, early_release=1))
    assert any(i.op == "WARPGROUP.SIGNAL" for i in compiled.instructions)
    options = {"mode": "chip", "l2_state": "cold"}
    expected = simulate_reference(compiled, small, **options)
    assert not differences(expected, simulate(compiled, small, fast_forward=False, **options))


def test_fast_forward_is_exact() -> None:
    h100 = machine("h100")
    params = find_kernel("gemm").check({"m": 4096, "n": 4096, "k": 4096})
    config = find_kernel("gemm").candidates(h100, params)[0]
    compiled = compile_kernel("gemm", h100, params, dataclasses.replace(config, early_release=1))
    slow, fast = (simulate(compiled, h100, fast_forward=on) for on in (False, True))
    assert fast.fast_forwarded_cycles > 0
    assert not differences(slow, fast)
