"""Are gates and rotations of the FIBER-native GEMM right, in wefts of their own where there is room?"""

from __future__ import annotations

from typing import Any

import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.ir.tile import Elementwise, Gate
from heddle.ir.tile_walk import walk
from heddle.study.checks import check
from heddle.study.requests import request
from heddle.study.runs import candidates

ROPE = {"m": 72, "n": 320, "epilogue": "rope", "head_dim": 64, "heads_q": 3, "heads_kv": 1}
GATED = {"m": 72, "n": 144, "epilogue": "silu_mul"}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("a100", {**GATED, "k": 136, "tile_m": 64, "tile_n": 64, "stages": 2}),
    ("a100", {**ROPE, "k": 136, "tile_m": 64, "tile_n": 64, "stages": 2, "dtype": "bf16"}),
    ("h100", {**GATED, "k": 136, "tile_n": 64, "groups": 1, "cluster": 1}),  # rows of C are unaligned: plain stores
    ("h100", {**ROPE, "k": 136, "tile_n": 64, "groups": 1, "cluster": 1}),
    ("b200", {**GATED, "k": 256, "tile_n": 64}),
    ("b200", {**ROPE, "k": 256, "tile_n": 64, "dtype": "bf16"}),
]


@pytest.mark.parametrize(("gpu", "given"), CASES, ids=[f"{gpu}-{given['epilogue']}" for gpu, given in CASES])
def test_wefts_gate_and_rotate(gpu: str, given: dict[str, Any]) -> None:
    row = check(request("gemm", gpu, mode="fiber", texts=given))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize(("gpu", "role"), [("a100", "multiply"), ("h100", "store"), ("b200", "store")])
@pytest.mark.parametrize("epilogue", ["silu_mul", "rope"])
def test_which_wefts_have_the_epilogue(gpu: str, role: str, epilogue: str) -> None:
    asked = request(
        "gemm",
        gpu,
        mode="fiber",
        texts={"m": 256, "n": 512, "k": 512, "epilogue": epilogue, "heads_q": 2, "heads_kv": 1},
    )
    program = pipeline.tile_program("gemm", asked.machine, asked.params, candidates(asked)[0], "fiber")
    found = {
        place.role.name
        for op, place in walk(program)
        if isinstance(op, Gate) or (isinstance(op, Elementwise) and op.function == "rotate")
    }
    assert found == {role}


def test_candidates_end_where_values_begin() -> None:
    texts = {"m": 512, "n": 640, "k": 512, "epilogue": "rope", "heads_q": 3, "heads_kv": 1, "head_dim": 128}
    for gpu in ("a100", "h100", "b200"):
        widths = {config.tile_n for config in candidates(request("gemm", gpu, mode="fiber", texts=texts))}
        assert max(widths) in (128, 256)
        assert not widths & {96, 192}


def test_a_part_of_a_tile_has_whole_chunks() -> None:
    with pytest.raises(UserError, match="32 columns of a part of a tile at a time"):
        check(request("gemm", "h100", mode="fiber", texts={**GATED, "k": 136, "tile_n": 80}))
