"""Do both engines agree on every count of the backward pass, where words or bulk copies are added to memory?"""

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


@pytest.mark.parametrize(("gpu", "case"), CASES, ids=str)
def test_engines_agree(gpu: str, case: dict[str, Any]) -> None:
    small = dataclasses.replace(machine(gpu), sms=2)
    program = compile_kernel("attention_bwd", small, case)
    verify(program, small)
    assert parse_program(print_program(program)) == program
    options: dict[str, Any] = {"mode": "chip", "l2_state": "cold"}
    expected = simulate_reference(program, small, **options)
    assert not differences(expected, simulate(program, small, fast_forward=False, **options))
