"""Do both engines agree on every count of decoding on H100 and B200, where sums leave from registers?"""

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


@pytest.mark.parametrize(
    ("gpu", "kernel", "dtype"),
    [
        ("h100", "decode_split_fa3", "fp16"),
        pytest.param("h100", "decode_split_fa3", "fp8_e4m3", marks=pytest.mark.slow),
        pytest.param("b200", "decode_split_fa4", "fp16", marks=pytest.mark.slow),
    ],
)
def test_engines_agree(gpu: str, kernel: str, dtype: str) -> None:
    small = dataclasses.replace(machine(gpu), sms=2)
    sizes = {"batch": 1, "heads_q": 3, "heads_kv": 1, "seqlen_kv": 300, "num_splits": 2, "dtype": dtype}
    program = compile_kernel(kernel, small, sizes)
    verify(program, small)
    assert parse_program(print_program(program)) == program
    options: dict[str, Any] = {"mode": "chip", "l2_state": "cold"}
    expected = simulate_reference(program, small, **options)
    assert not differences(expected, simulate(program, small, fast_forward=False, **options))
