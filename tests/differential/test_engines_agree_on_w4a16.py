"""Do both engines agree on every count where weights are unpacked, or looked up in L2 and in shared memory?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agreement import differences
from heddle.ir.warp_text import parse_program, print_program
from heddle.ir.warp_verify import verify
from heddle.kernels.w4a16 import sm80_fiber_config, sm90_fiber_config, sm100_fiber_config
from heddle.kernels.w4a16.shape import W4Config
from heddle.pipeline import compile_kernel
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference
from heddle.study.requests import request

TODAY = W4Config(tile_m=32, tile_n=128, stages=3, warps=4)
SIZES = {"m": 20, "n": 136, "k": 256}


CONFIGS: dict[str, Any] = {
    "a100": sm80_fiber_config.FiberW480Config(tile_m=64, tile_n=64, stages=2),
    "h100": sm90_fiber_config.Turned90Config(tokens=64, stages=2, groups=2),
    "b200": sm100_fiber_config.Turned100Config(tokens=64, stages=2),
}
GEMV = W4Config(tile_m=1, tile_n=8, stages=1, warps=8)
BY_OWN = {
    "wgmma": W4Config(tile_m=64, tile_n=128, stages=2, warps=8),
    "tcgen05": W4Config(tile_m=64, tile_n=128, stages=2, warps=4),
}
SCHEMES = ("awq", "aqlm_1x16", "aqlm_2x8")
CASES: list[Any] = [
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            *(("a100", scheme, "simt") for scheme in SCHEMES),
            ("h100", "aqlm_2x8", "gemv"),
            ("a100", "aqlm_1x16", "gemv"),
            ("b200", "aqlm_1x16", "gemv"),
            *(("h100", scheme, "wgmma") for scheme in SCHEMES),
            *(("b200", scheme, "tcgen05") for scheme in SCHEMES),
            *((gpu, scheme, "fiber") for gpu in CONFIGS for scheme in SCHEMES),
        )
    ),
]


@pytest.mark.parametrize(("gpu_name", "scheme", "mode"), CASES)
def test_engines_agree(gpu_name: str, scheme: str, mode: str) -> None:
    config, params = CONFIGS[gpu_name] if mode == "fiber" else TODAY, {**SIZES, "scheme": scheme}
    if mode in BY_OWN:
        config, params, mode = BY_OWN[mode], {**params, "implementation": mode}, "simt"
    if mode == "gemv":
        config, params, mode = GEMV, {**params, "m": 2, "n": 24, "implementation": mode}, "simt"
    gpu = dataclasses.replace(request("w4a16", gpu_name, mode=mode, texts=SIZES).machine, sms=2)
    program = compile_kernel("w4a16", gpu, params, config, mode)
    verify(program, gpu)
    assert parse_program(print_program(program)) == program
    options: dict[str, Any] = {"mode": "chip", "l2_state": "cold"}
    expected = simulate_reference(program, gpu, **options)
    assert not differences(expected, simulate(program, gpu, fast_forward=False, **options))
