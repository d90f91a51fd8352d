"""Does the FIBER-native backward pass of H100 compute right gradients, with what is handed over in registers?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fiber_backward_h100 import checked, compiled, one_sm, problem
from heddle import sim
from heddle.errors import UserError
from heddle.kernels.attention.backward.sm90_fiber_items import fiber_backward_items
from heddle.kernels.attention.backward.sm90_fiber_native import SM90_FIBER_BACKWARD
from heddle.study.checks import check
from heddle.study.requests import Request, request

CAUSAL = problem(seqlen_q=70, seqlen_kv=140, causal=True)
GROUPED = problem(heads_q=2, seqlen_q=130, seqlen_kv=100, head_dim=64, dtype="bf16")
SLOW = [
    problem(seqlen_q=333, seqlen_kv=20, causal=True),
    problem(seqlen_q=20, seqlen_kv=333, causal=True, dtype="bf16"),
    problem(heads_q=4, heads_kv=2, seqlen_q=200, seqlen_kv=257, head_dim=64, causal=True),
    problem(heads_q=3, heads_kv=1, seqlen_q=130, seqlen_kv=256),
    problem(batch=2, heads_q=2, heads_kv=2, seqlen_q=192, seqlen_kv=128),
    problem(seqlen_q=1, seqlen_kv=1),
]
MAPPINGS: list[Any] = [
    (128, {"dq": "bulk"}),
    pytest.param(64, {"dq": "bulk"}, marks=pytest.mark.slow),
    pytest.param(64, {"tile_m": 64, "slots": 2, "parts": 1}, marks=pytest.mark.slow),
]
LONG = problem(seqlen_q=1024, seqlen_kv=256)


@pytest.mark.parametrize("wanted", [CAUSAL, GROUPED, *(pytest.param(p, marks=pytest.mark.slow) for p in SLOW)], ids=str)
def test_gradients_are_right_and_no_hazard_is_found(wanted: Any) -> None:
    report = checked(wanted)
    assert report.ok, report.lines()


@pytest.mark.parametrize(("head_dim", "mapping"), MAPPINGS, ids=str)
def test_every_mapping_is_right(head_dim: int, mapping: dict[str, Any]) -> None:
    report = checked(problem(head_dim=head_dim), **mapping)
    assert report.ok, report.lines()


def test_gradients_are_right_under_a_random_schedule() -> None:
    report = checked(problem(), seed=1)
    assert report.ok, report.lines()


def both_passes() -> Request:
    sizes = {"batch": 1, "heads_q": 2, "heads_kv": 1, "seqlen_q": 20, "seqlen_kv": 24, "head_dim": 64}
    return request("attention", "h100", mode="fiber", texts={**sizes, "direction": "fwd+bwd"})


@pytest.mark.slow
def test_both_passes_of_mode_fiber_give_the_gradients() -> None:
    row = check(both_passes())
    assert row["passed"], row


def test_statistics_are_loaded_once_for_all_wefts() -> None:
    """LSE and row sums of 64 queries: of each a load by four wefts, for those that differentiate 2 x 64 keys."""
    roles = Counter(row.op for row in compiled(problem()).instructions)
    assert roles["LDS"] == 2 * 64 // 4 // 8 // 1


def test_products_are_weft_level_and_p_is_never_stored() -> None:
    """Stores to shared memory: dS of 64 queries and 128 keys, rounded, by stores of four registers."""
    mix = Counter(row.op for row in compiled(problem()).instructions)
    assert mix["WMMA"]
    assert not mix["WGMMA"]
    assert mix["STSM"] == 64 * 128 // 2 // 128 // 4
    assert not mix["STS"]


def test_the_tensor_cores_are_busy() -> None:
    result = sim.simulate(compiled(LONG), one_sm(), mode="chip")
    assert result.tensor_busy_cycles / result.cycles > 0.8


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(
    ("queries", "keys", "causal"),
    [(512, 512, True), (333, 500, True), (500, 200, True), (70, 333, False), (128, 256, False)],
)
def test_every_visible_block_is_visited_once_and_masked_where_needed(
    head_dim: int, queries: int, keys: int, causal: bool
) -> None:
    at = problem(seqlen_q=queries, seqlen_kv=keys, head_dim=head_dim, causal=causal)
    config = SM90_FIBER_BACKWARD.candidates(at, one_sm())[0]
    items, height = fiber_backward_items(at, config), config.tile_m
    blocks = range(0, queries, height)
    for row in (dict(zip(items, values, strict=True)) for values in zip(*items.values(), strict=True)):
        visited = [row["first"] + i * height for i in range(row["blocks"])]
        plain = visited[row["masked"] :]
        last_key = min(row["key"] + config.tile_n, keys) - 1
        sees = [r for r in blocks if not causal or min(r + height, queries) - 1 + at.diagonal >= row["key"]]
        assert visited == (sees or [blocks[-1]])
        assert (len(plain), visited[-1], len(visited) - 1) == (row["plain"], row["last"], row["more"])
        assert not plain or row["key"] + config.tile_n <= keys
        assert all(not causal or r + at.diagonal >= last_key for r in plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tile_m": 96}, "tile_m is 64 or 128"),
        ({"tile_m": 128, "slots": 1}, "(?s)tile_m = 128 at head size 128 takes at least .*use tile_m = 64"),
        ({"slots": 3}, "slots is 1 or 2"),
        ({"parts": 3}, "parts 1 to 2"),
        ({"key_stages": 1}, "key_stages at least 2"),
        ({"stages": 4}, "takes .* bytes of shared memory"),
        ({"dq": "words"}, "dq is one of bulk, atomics"),
        ({"parts": 1}, "registers"),
    ],
)
def test_what_cannot_run_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        compiled(problem(), **changes)


def test_a_head_size_without_a_kernel_is_refused() -> None:
    with pytest.raises(UserError, match="has head sizes 64, 128, got 256"):
        SM90_FIBER_BACKWARD.candidates(problem(head_dim=256), one_sm())
