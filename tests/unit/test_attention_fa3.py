"""Does FlashAttention 3 compute the right numbers without hazards, and take the tiles of the open kernel?"""

import dataclasses
from typing import Any

import pytest

from attention_variants import VARIANTS
from heddle.errors import UserError
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.study.checks import check, check_sizes
from heddle.study.requests import request


def verdict(**params: Any) -> dict[str, Any]:
    return check(request("attention", "h100", texts=check_sizes("attention", params)))


def label(**params: Any) -> str:
    return find_kernel("attention").candidates(machine("h100"), params)[0].label()


QUICK = [
    {"head_dim": 128, "causal": 1, "seqlen_q": 333},
    {"head_dim": 64, "seqlen_q": 200, "dtype": "bf16"},
    {"head_dim": 128, "heads_q": 4, "heads_kv": 1, "seqlen_q": 20, "seqlen_kv": 333, "causal": 1},
    {"head_dim": 128, "seqlen_q": 200, "seqlen_kv": 500, "dtype": "fp8_e4m3"},
    {"head_dim": 64, "heads_q": 1, "seqlen_q": 333, "causal": 1, "dtype": "fp8_e4m3"},
]
ALL = VARIANTS + [{**params, "dtype": "fp8_e4m3"} for params in VARIANTS if params["heads_q"] == 2]


@pytest.mark.parametrize("params", QUICK, ids=str)
def test_numbers_are_right_and_nothing_races(params: dict[str, Any]) -> None:
    row = verdict(**params)
    assert row["passed"], (row["relative_error"], row["hazards"])


@pytest.mark.slow
@pytest.mark.parametrize("params", ALL, ids=str)
def test_all_variants(params: dict[str, Any]) -> None:
    row = verdict(**params)
    assert row["passed"], (row["relative_error"], row["hazards"])


def test_without_the_wait_for_the_output_store_a_hazard_is_reported() -> None:
    kernel, h100 = find_kernel("attention"), machine("h100").replace(sms=2)
    params = kernel.check({"batch": 1, "heads_q": 3, "seqlen_q": 256, "head_dim": 128})
    asked = dataclasses.replace(request("attention", h100, texts=params), machine=h100)
    from heddle.pipeline import tile_program, warp_program

    tiles = tile_program("attention", h100, params)
    roles = tuple(
        dataclasses.replace(role, body=_without_wait(role.body)) if role.name == "producer" else role
        for role in tiles.roles
    )
    program = warp_program(dataclasses.replace(tiles, roles=roles), h100)
    row = check(asked, program=program)
    assert any("v" in hazard and "sm90_fa3_memory.py" in hazard for hazard in row["hazards"])


def _without_wait(body: tuple[Any, ...]) -> tuple[Any, ...]:
    kept = [op for op in body if getattr(getattr(op, "barrier", None), "name", "") != "o_stored"]
    return tuple(dataclasses.replace(op, body=_without_wait(op.body)) if hasattr(op, "body") else op for op in kept)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"head_dim": 64}, "fa3 192x192 g3 s2 p-shared static"),
        ({"head_dim": 64, "causal": 1}, "fa3 192x128 g3 s2 dynamic"),
        ({"head_dim": 128}, "fa3 128x176 g2 s2 c2 static"),
        ({"head_dim": 128, "seqlen_q": 384}, "fa3 128x176 g2 s2 static"),
        ({"head_dim": 128, "causal": 1}, "fa3 128x128 g2 s2 dynamic"),
        ({"head_dim": 256}, "fa3 128x80 g2 s2 c2 static"),
        ({"head_dim": 64, "dtype": "fp8_e4m3"}, "fa3 192x160 g3 s2 static"),
        ({"head_dim": 128, "dtype": "fp8_e4m3", "causal": 1}, "fa3 128x224 g2 s2 dynamic"),
        ({"head_dim": 128, "seqlen_q": 16, "heads_kv": 2}, "fa3 128x176 g2 s2 packed static"),
    ],
)
def test_tiles_are_those_of_the_open_kernel(params: dict[str, Any], expected: str) -> None:
    assert label(**params) == expected


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"causal": 2}, "must be one of 0, 1"),
        ({"heads_q": 6, "heads_kv": 4}, "must be a multiple of heads_kv"),
        ({"head_dim": 96}, "must be one of 64, 128, 256"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(params: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        find_kernel("attention").check(params)


def test_a_tile_beyond_shared_memory_is_refused() -> None:
    kernel, h100 = find_kernel("attention"), machine("h100")
    config = dataclasses.replace(kernel.candidates(h100, {})[0], tile_n=256)
    with pytest.raises(UserError, match="bytes of shared memory"):
        kernel.build(h100, {}, config)


def test_one_block_of_keys_is_right_as_wefts_too() -> None:
    given = {"batch": 1, "heads_q": 1, "seqlen_q": 100, "seqlen_kv": 100}
    row = check(request("attention", "h100", mode="cuda-native", texts=given))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_causal_tiles_have_no_cluster_in_mode_fiber_either() -> None:
    with pytest.raises(UserError, match="causal tiles have a number of blocks each"):
        check(request("attention", "h100", mode="fiber", texts={"seqlen_q": 256, "causal": 1, "cluster": 2}))
