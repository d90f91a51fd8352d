"""Is the gated epilogue right for every schedule, and refused where it does not fit?"""

from __future__ import annotations

from typing import Any

import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.lang import Builder, kernel
from heddle.study.checks import check
from heddle.study.requests import request
from heddle.study.runs import candidates

SIZES = {"m": 200, "n": 304, "k": 264, "epilogue": "silu_mul"}
COOPERATIVE = {"schedule": "cooperative", "tile_m": 128, "tile_n": 64, "tile_k": 64, "stages": 3}
PINGPONG = {**COOPERATIVE, "schedule": "pingpong", "tile_m": 64}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("a100", {}),
    ("a100", {"warps": "4x2", "tile_m": 128, "tile_n": 64, "tile_k": 32, "stages": 2, "split_k": 2}),
    ("h100", {**COOPERATIVE, "cluster": 2, "cluster_side": "n"}),
    ("h100", {**COOPERATIVE, "cluster": 1, "split_k": 3, "dtype": "bf16"}),
    ("h100", {**PINGPONG, "cluster": 2}),
    ("h100", {**PINGPONG, "n": 272}),  # rows of C are no multiple of 16 bytes: plain stores
    ("b200", {"cluster": 2}),
    ("b200", {"cluster": 1, "dtype": "bf16"}),
]


@pytest.mark.parametrize(("gpu", "given"), CASES, ids=[f"{gpu}-{i}" for i, (gpu, _) in enumerate(CASES)])
def test_gates_multiply_their_factors(gpu: str, given: dict[str, Any]) -> None:
    row = check(request("gemm", gpu, texts={**SIZES, **given}))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_each_gate_costs_two_special_functions() -> None:
    texts = {**SIZES, **PINGPONG, "m": 64, "n": 64, "cluster": 1}
    asked = request("gemm", "h100", texts=texts)
    plain = request("gemm", "h100", texts={**texts, "epilogue": "none"})
    gated, without = (
        pipeline.run_once("gemm", r.machine, r.params, candidates(r)[0], clock_mhz=1500.0)["instructions"]["by_pipe"]
        for r in (asked, plain)
    )
    assert gated["sfu"] - without.get("sfu", 0) == 2 * 64 * 32 // 32


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"n": 312}, "n = 312 is no multiple"),
        ({"dtype": "fp8_e4m3", "k": 272}, "need scales in fp8_e4m3"),
        ({**PINGPONG, "tile_n": 48}, "tile_n is a multiple of 32, got 48"),
    ],
)
def test_what_cannot_be_gated_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        check(request("gemm", "h100", texts={**SIZES, **given}))


@pytest.mark.parametrize(
    ("shape", "first", "dtype", "text"),
    [
        ((64, 16), 8, "fp32", "does not take gates"),
        ((64, 64), 0, "fp32", "expected 64 x 128"),
        ((64, 16), 0, "fp16", "computed in fp32"),
    ],
)
def test_a_gate_between_tiles_that_do_not_fit_is_refused(
    shape: tuple[int, int], first: int, dtype: str, text: str
) -> None:
    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        source = k.registers("x", (64, 64), "fp32", warps=(4, 1))
        target = k.registers("y", shape, dtype, warps=(4, 1))
        with k.role("group", warps=4, registers=64):
            k.fill(source)
            k.gate(target, source.columns(first, 32))

    with pytest.raises(UserError, match=text):
        small.build("sm_90")
