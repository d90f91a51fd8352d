"""Sizes of a tile configuration that make no sense are refused by name, before anything is computed from them."""

import pytest

import heddle
from heddle.errors import UserError


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("tile_m", 0, "tile_m must be at least 1, got 0"),
        ("tile_k", 0, "tile_k must be at least 1, got 0"),
        ("tile_n", -128, "tile_n must be at least 1, got -128"),
        ("stages", -2, "stages must be at least 1, got -2"),
        ("warps", "4", "warps must be rows x columns of at least 1 x 1, got 4"),
        ("warps", "0x4", "warps must be rows x columns of at least 1 x 1, got 0x4"),
    ],
)
def test_a_size_below_one_is_refused_by_name(field: str, value: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        heddle.compile("gemm", "a100", m=512, n=512, k=512, **{field: value})
