"""Which tiles does attention make, in which order, and which of their blocks are masked?"""

from typing import Any

import pytest

from heddle.kernels.attention.raster import section_planes, work_items
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem


def problem(**changes: Any) -> AttentionProblem:
    sizes = {"batch": 1, "heads_q": 2, "heads_kv": 2, "seqlen_q": 384, "seqlen_kv": 384, "head_dim": 128}
    return AttentionProblem(**{**sizes, "causal": False, "dtype": "fp16", **changes})


def config(**changes: Any) -> AttentionConfig:
    fields = {"schedule": "fa3", "tile_m": 128, "tile_n": 128, "stages": 2, "groups": 2, "order": "static"}
    return AttentionConfig(**{**fields, **changes})


def test_static_order_goes_through_the_rows_of_one_head_first() -> None:
    items = work_items(problem(), config())
    assert list(zip(items["q_plane"], items["row"], strict=True)) == [
        (0, 0), (0, 128), (0, 256), (1, 0), (1, 128), (1, 256),
    ]  # fmt: skip


def test_dynamic_order_takes_the_longest_tiles_of_all_heads_of_a_section_first() -> None:
    items = work_items(problem(causal=True), config(order="dynamic"))
    assert list(zip(items["q_plane"], items["row"], strict=True)) == [
        (0, 256), (1, 256), (0, 128), (1, 128), (0, 0), (1, 0),
    ]  # fmt: skip


def test_a_section_has_a_power_of_two_of_heads_whose_keys_and_values_fit_32_mb() -> None:
    assert section_planes(problem(seqlen_kv=8192), config()) == 8
    assert section_planes(problem(seqlen_kv=6000), config()) == 8
    assert section_planes(problem(heads_q=8, seqlen_kv=8192), config()) == 32


def test_a_head_beyond_32_mb_is_a_section_of_its_own() -> None:
    assert section_planes(problem(seqlen_kv=1 << 20), config()) == 1


def test_blocks_end_where_the_last_row_of_a_tile_sees_no_more_keys() -> None:
    assert work_items(problem(causal=True), config())["more"] == [0, 1, 2, 0, 1, 2]
    assert work_items(problem(), config())["more"] == [2] * 6


def test_only_the_first_block_is_masked_where_tiles_are_square_and_aligned() -> None:
    assert set(work_items(problem(causal=True), config())["masked"]) == {0}


@pytest.mark.parametrize(("seqlen_kv", "masked"), [(384, [0, 0, 0]), (400, [1, 1, 1]), (200, [0, 0, 1])])
def test_further_blocks_are_masked_where_the_diagonal_crosses_them(seqlen_kv: int, masked: list[int]) -> None:
    items = work_items(problem(causal=True, heads_q=1, heads_kv=1, seqlen_kv=seqlen_kv), config())
    assert items["masked"] == masked


def test_packed_heads_make_rows_of_one_plane_for_each_key_head() -> None:
    items = work_items(problem(heads_q=8, seqlen_q=20), config(packed=True))
    assert (items["q_plane"], items["kv_plane"], items["row"]) == ([0, 1], [0, 1], [0, 0])


def test_query_heads_of_a_group_read_one_key_head() -> None:
    items = work_items(problem(batch=2, heads_q=4, seqlen_q=100), config())
    assert items["kv_plane"] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_cluster_takes_rows_of_all_its_ctas() -> None:
    assert work_items(problem(heads_q=1, heads_kv=1, seqlen_q=512), config(cluster=2))["row"] == [0, 256]
