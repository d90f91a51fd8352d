"""Do both engines agree on every count of the backward pass on H100, whose bulk copies add to global memory?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agreement import differences
from heddle.ir.warp_text import parse_program, print_program
from heddle.ir.warp_verify import verify
from heddle.machine import machine
from heddle.pipeline import compile_kernel
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference

H100 = dataclasses.replace(machine("h100"), sms=2)
CASES: list[Any] = [
    {"batch": 1, "heads_q": 1, "seqlen_q": 100, "seqlen_kv": 64},
    pytest.param({"batch": 1, "heads_q": 2, "heads_kv": 1, "seqlen_q": 200, "seqlen_kv": 257}, marks=pytest.mark.slow),
    pytest.param({"batch": 1, "heads_q": 2, "seqlen_q": 300, "causal": 1, "head_dim": 64}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_engines_agree(case: dict[str, Any]) -> None:
    program = compile_kernel("attention_bwd", H100, case)
    verify(program, H100)
    assert parse_program(print_program(program)) == program
    options: dict[str, Any] = {"mode": "chip", "l2_state": "cold"}
    expected = simulate_reference(program, H100, **options)
    assert not differences(expected, simulate(program, H100, fast_forward=False, **options))
