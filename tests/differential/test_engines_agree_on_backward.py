"""Do both engines agree on every count of the backward pass, where words or bulk copies are added to memory?

The FIBER-native kernels are of the same registry entry.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agreement import differences
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_text import parse_program, print_program
from heddle.ir.warp_verify import verify
from heddle.kernels.attention.backward.kernel import ATTENTION_BWD
from heddle.machine import Machine, machine
from heddle.passes import compile_program
from heddle.pipeline import compile_kernel
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference

CASES: list[Any] = [
    ("h100", {"batch": 1, "heads_q": 1, "seqlen_q": 100, "seqlen_kv": 64}),
    ("a100", {"batch": 1, "heads_q": 1, "seqlen_q": 100, "seqlen_kv": 64}),
    ("b200", {"batch": 1, "heads_q": 1, "seqlen_q": 200, "seqlen_kv": 64}),
    *(
        pytest.param(gpu, params, marks=pytest.mark.slow)
        for gpu in ("h100", "a100", "b200")
        for params in (
            {"batch": 1, "heads_q": 2, "heads_kv": 1, "seqlen_q": 200, "seqlen_kv": 257},
            {"batch": 1, "heads_q": 2, "seqlen_q": 300, "causal": 1, "head_dim": 64},
        )
    ),
]


SHORT: dict[str, Any] = {"batch": 1, "heads_q": 1, "seqlen_q": 70, "seqlen_kv": 64}
FIBER: list[Any] = [
    ("b200", {**SHORT, "head_dim": 64}),
    *(pytest.param(gpu, SHORT, marks=pytest.mark.slow) for gpu in ("a100", "b200")),
    pytest.param(
        "a100",
        {"batch": 1, "heads_q": 2, "heads_kv": 1, "seqlen_q": 200, "seqlen_kv": 257, "causal": 1, "head_dim": 64},
        marks=pytest.mark.slow,
    ),
    pytest.param("a100", {"batch": 2, "heads_q": 2, "seqlen_q": 256, "seqlen_kv": 128}, marks=pytest.mark.slow),
    pytest.param(
        "b200",
        {"batch": 1, "heads_q": 2, "heads_kv": 1, "seqlen_q": 500, "seqlen_kv": 257, "causal": 1},
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "b200",
        {"batch": 1, "heads_q": 2, "heads_kv": 1, "seqlen_q": 300, "seqlen_kv": 200, "causal": 1, "head_dim": 64},
        marks=pytest.mark.slow,
    ),
    pytest.param("h100", SHORT, marks=pytest.mark.slow),
    pytest.param(
        "h100",
        {"batch": 1, "heads_q": 2, "heads_kv": 1, "seqlen_q": 70, "seqlen_kv": 129, "causal": 1, "head_dim": 64},
        marks=pytest.mark.slow,
    ),
    pytest.param("h100", {"batch": 2, "heads_q": 2, "seqlen_q": 130, "seqlen_kv": 128}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("gpu", "case"), CASES, ids=str)
def test_engines_agree(gpu: str, case: dict[str, Any]) -> None:
    small = dataclasses.replace(machine(gpu), sms=2)
    agree(compile_kernel("attention_bwd", small, case), small)


@pytest.mark.parametrize(("gpu", "case"), FIBER, ids=str)
def test_engines_agree_on_the_fiber_native_kernel(gpu: str, case: dict[str, Any]) -> None:
    small = dataclasses.replace(machine(f"{gpu}+fiber"), sms=2)
    tiles = ATTENTION_BWD.build(small, case, mode="fiber")
    agree(compile_program(tiles, small), small)


def agree(program: WarpProgram, small: Machine) -> None:
    verify(program, small)
    assert parse_program(print_program(program)) == program
    options: dict[str, Any] = {"mode": "chip", "l2_state": "cold"}
    expected = simulate_reference(program, small, **options)
    assert not differences(expected, simulate(program, small, fast_forward=False, **options))
