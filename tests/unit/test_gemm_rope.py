"""Is rotary position embedding in the epilogue right for every schedule, and refused where tiles do not fit heads?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from heddle.errors import UserError
from heddle.kernels.gemm.reference import angles, reference
from heddle.kernels.gemm.shape import GemmProblem
from heddle.lang import Builder, kernel
from heddle.study.checks import check
from heddle.study.requests import request
from heddle.study.runs import compiled

NARROW = {"m": 72, "n": 320, "k": 72, "epilogue": "rope", "head_dim": 64, "heads_q": 3, "heads_kv": 1}
WIDE = {"m": 40, "n": 640, "k": 72, "epilogue": "rope", "head_dim": 128, "heads_q": 3, "heads_kv": 1}
COOPERATIVE = {"schedule": "cooperative", "tile_m": 128, "tile_n": 64, "tile_k": 64, "stages": 2}
PINGPONG = {**COOPERATIVE, "schedule": "pingpong", "tile_m": 64}
SMALL = {"tile_m": 64, "tile_n": 64, "tile_k": 32, "stages": 2, "warps": "2x2"}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("a100", "simt", {**NARROW, **SMALL}),
    ("a100", "cuda-native", {**WIDE, **SMALL, "dtype": "bf16"}),
    ("a100", "simt", {**NARROW, **SMALL, "k": 136, "split_k": 2}),
    ("h100", "simt", {**WIDE, **COOPERATIVE, "cluster": 2, "cluster_side": "n"}),
    ("h100", "simt", {**NARROW, **COOPERATIVE, "cluster": 1, "split_k": 2, "dtype": "bf16"}),
    ("h100", "cuda-native", {**NARROW, **PINGPONG, "cluster": 1}),
    ("h100", "simt", {**WIDE, **PINGPONG, "cluster": 1, "tile_n": 256}),  # two heads side by side
    ("b200", "simt", {**NARROW, "cluster": 1, "tile_n": 64}),
    ("b200", "cuda-native", {**WIDE, "cluster": 1, "tile_n": 128, "dtype": "bf16"}),
]


@pytest.mark.parametrize(("gpu", "mode", "given"), CASES, ids=[f"{gpu}-{i}" for i, (gpu, *_) in enumerate(CASES)])
def test_queries_and_keys_are_rotated_and_values_are_not(gpu: str, mode: str, given: dict[str, Any]) -> None:
    row = check(request("gemm", gpu, mode=mode, texts=given))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_scores_depend_on_the_distance_of_positions_alone() -> None:
    problem = GemmProblem(m=64, n=256, k=8, dtype="fp16", epilogue="rope", head_dim=64, heads_q=2, heads_kv=1)
    turn = angles(problem).reshape(problem.m, -1, 2)
    x, y = np.random.default_rng(0).standard_normal((2, turn.shape[1], 2))
    rotated = [(v[:, 0] + 1j * v[:, 1]) * (turn[..., 0] + 1j * turn[..., 1]) for v in (x, y)]
    scores = (rotated[0] @ rotated[1].conj().T).real
    assert np.allclose(np.diagonal(scores, 5), scores[0, 5])


def test_the_first_token_is_not_rotated() -> None:
    sizes = {"m": 4, "n": 256, "k": 8, "dtype": "fp16"}
    heads = {"head_dim": 64, "heads_q": 2, "heads_kv": 1}
    rotated = reference(GemmProblem(**sizes, epilogue="rope", **heads), 0)[1]["C"]
    plain = reference(GemmProblem(**sizes), 0)[1]["C"]
    assert np.array_equal(rotated[0], plain[0])
    assert np.array_equal(rotated[:, 192:], plain[:, 192:])
    assert not np.allclose(rotated[1:, :192], plain[1:, :192])


def test_a_pair_takes_four_operations() -> None:
    texts = {**NARROW, **PINGPONG, "m": 64, "n": 256, "heads_q": 2, "cluster": 1}
    rotating, plain = (
        Counter(i.op for i in compiled(request("gemm", "h100", texts={**texts, "epilogue": name})).instructions)
        for name in ("rope", "none")
    )
    pairs = 2 * 64 * 64 // 2 // 128  # of a thread, in the code of two groups
    assert {op: rotating[op] - plain[op] for op in ("FMUL", "FFMA", "HADD2")} == dict.fromkeys(
        ("FMUL", "FFMA", "HADD2"), 2 * pairs
    )


@pytest.mark.parametrize(
    ("gpu", "given", "text"),
    [
        ("h100", {"n": 384}, "have 320 columns; n is 384"),
        ("h100", {"dtype": "fp8_e4m3", "k": 272}, "need scales in fp8_e4m3"),
        ("h100", {**WIDE, **PINGPONG, "cluster": 1, "tile_n": 96}, "divides the 128 columns of a head or is"),
        ("a100", {**SMALL, "tile_n": 128}, "divides the 64 columns of a head; got 128"),
        ("b200", {"heads_q": 4, "n": 384, "tile_n": 128, "cluster": 1}, "are a multiple of the tile's 128"),
    ],
)
def test_what_cannot_be_rotated_is_refused(gpu: str, given: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        check(request("gemm", gpu, texts={**NARROW, **given}))


@pytest.mark.parametrize(
    ("dtype", "cols", "text"), [("fp16", 64, "rotated in fp32"), ("fp32", 1, "cosine and sine of each pair")]
)
def test_a_rotation_of_what_has_no_pairs_is_refused(dtype: str, cols: int, text: str) -> None:
    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        tile = k.registers("x", (64, 64), dtype, warps=(4, 1))
        turns = k.registers("t", (64, cols), "fp32", warps=(4, 1))
        with k.role("group", warps=4, registers=64):
            k.fill(tile)
            k.fill(turns)
            k.elementwise("rotate", tile, tile, turns)

    with pytest.raises(UserError, match=text):
        small.build("sm_90")
