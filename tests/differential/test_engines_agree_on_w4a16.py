"""Do both engines agree on every count where weights are unpacked, or looked up in L2 and in shared memory?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agreement import differences
from heddle.ir.warp_text import parse_program, print_program
from heddle.ir.warp_verify import verify
from heddle.kernels.gemm.sm80_fiber_config import FiberGemm80Config
from heddle.kernels.w4a16.shape import W4Config
from heddle.kernels.w4a16.sm90_fiber_config import TurnedConfig
from heddle.pipeline import compile_kernel
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference
from heddle.study.requests import request

TODAY = W4Config(tile_m=32, tile_n=128, stages=3, warps=4)
NATIVE = FiberGemm80Config(tile_m=64, tile_n=64, stages=2)
TURNED = TurnedConfig(tokens=64, stages=2, groups=2)
SIZES = {"m": 20, "n": 136, "k": 256}


SCHEMES = ("awq", "aqlm_1x16", "aqlm_2x8")
CASES: list[Any] = [
    ("a100", "aqlm_1x16", "simt"),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("a100", "awq", "simt"),
            ("a100", "aqlm_2x8", "simt"),
            *((gpu, scheme, "fiber") for gpu in ("a100", "h100") for scheme in SCHEMES),
        )
    ),
]
CONFIGS = {"a100": NATIVE, "h100": TURNED}


@pytest.mark.parametrize(("gpu_name", "scheme", "mode"), CASES)
def test_engines_agree(gpu_name: str, scheme: str, mode: str) -> None:
    gpu = dataclasses.replace(request("w4a16", gpu_name, mode=mode, texts=SIZES).machine, sms=2)
    params = {**SIZES, "scheme": scheme}
    program = compile_kernel("w4a16", gpu, params, CONFIGS[gpu_name] if mode == "fiber" else TODAY, mode)
    verify(program, gpu)
    assert parse_program(print_program(program)) == program
    options: dict[str, Any] = {"mode": "chip", "l2_state": "cold"}
    expected = simulate_reference(program, gpu, **options)
    assert not differences(expected, simulate(program, gpu, fast_forward=False, **options))
