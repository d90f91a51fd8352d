"""Does the backward pass of FlashAttention 3 on H100 give the gradients, in the open kernel's order and tiles?"""

from __future__ import annotations

from typing import Any

import pytest

import heddle
from heddle.errors import UserError
from heddle.kernels.attention.backward.launches import fa3_launches
from heddle.kernels.attention.backward.sm90_fa3_config import fa3_backward_config, shared_bytes
from heddle.kernels.attention.backward.sm90_fa3_items import backward_items, section_planes
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine import machine


def problem(**sizes: Any) -> AttentionProblem:
    """A problem of head size 128, or as given."""
    base = {"batch": 1, "heads_q": 1, "heads_kv": 1, "seqlen_q": 256, "seqlen_kv": 256, "head_dim": 128}
    return AttentionProblem(**{**base, "causal": False, "dtype": "fp16", **sizes})


@pytest.mark.parametrize(
    "sizes",
    [
        {"heads_q": 1, "seqlen_q": 100, "seqlen_kv": 130},
        {"heads_q": 2, "heads_kv": 1, "seqlen_q": 70, "seqlen_kv": 129, "causal": 1, "dtype": "bf16"},
        {"heads_q": 1, "seqlen_q": 300, "seqlen_kv": 140, "causal": 1, "head_dim": 64},
        {"heads_q": 1, "seqlen_q": 130, "seqlen_kv": 100, "release": 1, "tile_m": 64},
        pytest.param({"heads_q": 4, "heads_kv": 2, "seqlen_q": 97, "seqlen_kv": 257}, marks=pytest.mark.slow),
        pytest.param({"seqlen_q": 333, "seqlen_kv": 100, "causal": 1}, marks=pytest.mark.slow),
        pytest.param({"seqlen_q": 512, "dtype": "bf16"}, marks=pytest.mark.slow),
        pytest.param({"head_dim": 64, "seqlen_q": 260, "heads_kv": 1, "dtype": "bf16"}, marks=pytest.mark.slow),
        pytest.param({"head_dim": 64, "seqlen_q": 200, "seqlen_kv": 333, "causal": 1}, marks=pytest.mark.slow),
    ],
)
def test_gradients_are_right(sizes: dict[str, Any]) -> None:
    found = heddle.check("attention_bwd", "h100", **sizes)
    assert found["passed"], (found["outputs"], found["hazards"])


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ({}, (80, 128, "swapped")),
        ({"causal": True}, (64, 128, "columns")),
        ({"head_dim": 64}, (128, 128, "rows")),
        ({"head_dim": 64, "causal": True}, (128, 128, "rows")),
    ],
)
def test_tiles_are_those_of_the_open_kernel(sizes: dict[str, Any], tile: tuple[int, int, str]) -> None:
    config = fa3_backward_config(problem(**sizes), machine("h100"))
    assert (config.tile_m, config.tile_n, config.dq) == tile


def test_the_widest_tile_takes_nearly_all_of_shared_memory() -> None:
    of_head = problem()
    needed = shared_bytes(of_head, fa3_backward_config(of_head, machine("h100")))
    assert machine("h100").shared_memory_bytes_per_cta - 2048 < needed <= machine("h100").shared_memory_bytes_per_cta


@pytest.mark.parametrize("sizes", [{"seqlen_q": 333}, {"seqlen_kv": 300}, {"head_dim": 64, "seqlen_kv": 1000}])
def test_causal_tiles_leave_out_only_blocks_without_a_visible_key(sizes: dict[str, Any]) -> None:
    of_head = problem(causal=True, **sizes)
    config = fa3_backward_config(of_head, machine("h100"))
    items = backward_items(of_head, config)
    for key, first, masked, plain, plain_first in zip(
        *(items[name] for name in ("key", "first", "masked", "plain", "plain_first")), strict=True
    ):
        before = [query for query in range(first) if key <= query + of_head.diagonal]
        assert not before
        assert min(first + config.tile_m, of_head.seqlen_q) - 1 + of_head.diagonal >= key
        assert (masked + plain - 1) * config.tile_m + first < of_head.seqlen_q
        assert (masked + plain) * config.tile_m + first >= of_head.seqlen_q
        if plain:  # every key of the tile is seen by the first query of the unmasked blocks
            assert min(key + config.tile_n, of_head.seqlen_kv) - 1 <= plain_first + of_head.diagonal


def test_causal_tiles_go_block_by_block_over_a_section_of_heads() -> None:
    of_heads = problem(causal=True, heads_q=3, heads_kv=3, seqlen_kv=300)
    items = backward_items(of_heads, fa3_backward_config(of_heads, machine("h100")))
    assert section_planes(of_heads) > 3
    assert list(zip(items["key"], items["q_plane"], strict=True)) == [(k, p) for k in (0, 128, 256) for p in range(3)]


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"head_dim": 256}, "has head sizes 64, 128, got 256"),
        ({"tile_m": 96}, "takes .* bytes of shared memory"),
        ({"tile_m": 80, "dq": "rows"}, "tile_m is a multiple of 128, got 80"),
        ({"tile_n": 64}, "tile_n is 128: 64 keys for each of 2 warp groups; got 64"),
        ({"head_dim": 64, "dq": "columns"}, "head_dim is 64"),
        ({"release": 1, "causal": 1}, "release = 1 had no causal mask"),
        ({"release": 2}, "release must be 0 or 1, got 2"),
    ],
)
def test_what_the_kernel_cannot_run_is_refused(sizes: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        heddle.compile("attention_bwd", "h100", seqlen_q=256, **sizes)


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        ("attention_bwd_preprocess_fa3", {"seqlen_q": 101}),
        ("attention_bwd_clear_keys", {"seqlen_kv": 33, "heads_kv": 1}),
        ("attention_bwd_convert_keys", {"seqlen_kv": 33, "heads_kv": 1, "dtype": "bf16"}),
    ],
)
def test_the_small_kernels_are_right(kernel: str, sizes: dict[str, Any]) -> None:
    found = heddle.check(kernel, "h100", heads_q=2, head_dim=64, **{"seqlen_q": 33, **sizes})
    assert found["passed"], (found["outputs"], found["hazards"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [{"heads_q": 1, "seqlen_q": 99, "causal": 1}, {"heads_kv": 1, "seqlen_q": 97, "seqlen_kv": 130}]
)
def test_the_launches_give_the_gradients(sizes: dict[str, Any]) -> None:
    found = heddle.check("attention", "h100", direction="bwd", **sizes)
    assert found["passed"], (found["outputs"], found["hazards"])


def test_grouped_queries_take_two_more_launches() -> None:
    alone, grouped = ([step.name for step in fa3_launches({"heads_q": 4, "heads_kv": kv})] for kv in (4, 2))
    assert alone == ["preprocess", "main", "convert"]
    assert grouped == ["preprocess", "clear_keys", "main", "convert", "convert_keys"]
