"""Do both engines agree on every count where wefts load straight into the pool and read each other's registers?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agreement import differences
from heddle.ir.warp_text import parse_program, print_program
from heddle.ir.warp_verify import verify
from heddle.pipeline import compile_kernel
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference
from heddle.study.requests import request


@pytest.mark.parametrize(
    ("kernel", "gpu", "sizes"),
    [
        ("rmsnorm", "a100", {"rows": 20, "hidden": 512, "residual": 1}),
        pytest.param("rope", "h100", {"rows": 40, "heads_q": 4, "heads_kv": 2}, marks=pytest.mark.slow),
        pytest.param("silu_mul", "b200", {"rows": 20, "cols": 1288}, marks=pytest.mark.slow),
    ],
)
def test_engines_agree(kernel: str, gpu: str, sizes: dict[str, Any]) -> None:
    asked = request(kernel, gpu, mode="fiber", texts=sizes)
    small = dataclasses.replace(asked.machine, sms=2)
    program = compile_kernel(kernel, small, asked.params, mode="fiber")
    verify(program, small)
    assert parse_program(print_program(program)) == program
    options: dict[str, Any] = {"mode": "chip", "l2_state": "cold"}
    expected = simulate_reference(program, small, **options)
    assert not differences(expected, simulate(program, small, fast_forward=False, **options))
