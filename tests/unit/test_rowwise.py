"""Are rotary position embedding and SiLU right as launches of their own, at sizes that end within a CTA?"""

from __future__ import annotations

from typing import Any

import pytest

from heddle.errors import UserError
from heddle.kernels.registry import find_kernel
from heddle.study.checks import check
from heddle.study.requests import request

HEADS = {"rows": 37, "heads_q": 5, "heads_kv": 4}


@pytest.mark.parametrize(("gpu", "given"), [
    ("a100", {**HEADS, "head_dim": 64, "dtype": "bf16"}),
    ("h100", {**HEADS, "head_dim": 128}),
])  # fmt: skip
def test_heads_are_rotated_by_position(gpu: str, given: dict[str, Any]) -> None:
    row = check(request("rope", gpu, texts=given))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize(("gpu", "cols"), [("a100", 1288), ("b200", 264)])
def test_a_row_is_gated_by_its_first_half(gpu: str, cols: int) -> None:
    row = check(request("silu_mul", gpu, texts={"rows": 3, "cols": cols}))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_columns_come_in_pieces_of_a_lane() -> None:
    with pytest.raises(UserError, match="8 columns at a time; cols = 100"):
        find_kernel("silu_mul").problem({"cols": 100})
