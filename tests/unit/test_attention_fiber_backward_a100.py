"""Does the FIBER-native backward pass of A100 compute right gradients, with what crosses subpartitions in registers?"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from fiber_backward_a100 import checked, compiled, one_sm, problem
from heddle import sim
from heddle.errors import UserError
from heddle.ir.warp_fiber import OWN
from heddle.kernels.attention.backward.sm80_fiber_config import fiber_backward_items
from heddle.kernels.attention.backward.sm80_fiber_native import CONFIGS, SM80_FIBER_BACKWARD
from heddle.study import composites
from heddle.study.checks import check
from heddle.study.requests import Request, request

CAUSAL = problem(seqlen_q=70, seqlen_kv=100, causal=True)
GROUPED = problem(heads_q=2, seqlen_q=40, seqlen_kv=70, head_dim=64, dtype="bf16")
SLOW = [
    problem(seqlen_q=333, seqlen_kv=20, causal=True),
    problem(seqlen_q=20, seqlen_kv=333, causal=True, dtype="bf16"),
    problem(heads_q=4, heads_kv=2, seqlen_q=200, seqlen_kv=257, head_dim=64, causal=True),
    problem(heads_q=3, seqlen_q=256, seqlen_kv=256, head_dim=64),
    problem(batch=2, heads_q=2, seqlen_q=160, seqlen_kv=128),
]
LONG = problem(seqlen_q=1024)


@pytest.mark.parametrize("wanted", [CAUSAL, GROUPED, *(pytest.param(p, marks=pytest.mark.slow) for p in SLOW)], ids=str)
def test_gradients_are_right_and_no_hazard_is_found(wanted: Any) -> None:
    report = checked(wanted)
    assert report.ok, report.lines()


def test_gradients_are_right_under_a_random_schedule() -> None:
    report = checked(CAUSAL, seed=1)
    assert report.ok, report.lines()


def both_passes() -> Request:
    sizes = {"batch": 1, "heads_q": 2, "heads_kv": 1, "seqlen_q": 20, "seqlen_kv": 24, "head_dim": 64}
    return request("attention", "a100", mode="fiber", texts={**sizes, "direction": "fwd+bwd"})


@pytest.mark.slow
def test_both_passes_of_mode_fiber_give_the_gradients() -> None:
    row = check(both_passes())
    assert row["passed"], row


def test_the_pass_has_the_launches_of_the_open_kernel() -> None:
    names = [step.name for step in composites.questions(both_passes())]
    assert names == ["forward", "preprocess", "main", "convert", "group_sum"]


def test_p_never_passes_through_shared_memory_and_ds_once() -> None:
    """Elements that a step stores: those of dS, 64 keys and 32 queries, packed in pairs."""
    mix = Counter(row.op for row in compiled(problem()).instructions)
    assert mix["STS"] == 64 * 32 // 2 // (4 * 32)
    assert not mix["HMMA"]


def test_first_operands_lie_in_the_own_subpartition_and_second_ones_in_two_or_four() -> None:
    program = compiled(problem())
    products = [row for row in program.instructions if row.op == "WMMA"]
    assert all(row.group for row in products)
    assert {row.src[0].place for row in products} == {OWN}
    homes: dict[tuple[int, ...], set[Any]] = {}
    for row in products:
        assert row.shape is not None
        homes.setdefault(row.shape, set()).add(row.src[1].place)
    assert homes == {(16, 32, 16): {0, 1, 2, 3}, (16, 128, 16): {0, 1, 2, 3}}


def test_each_word_of_dq_is_added_once_for_64_keys() -> None:
    mix = Counter(row.op for row in compiled(problem()).instructions)
    assert mix["RED"] == 32 * 128 // (4 * 32)


def test_the_tensor_cores_are_busy() -> None:
    result = sim.simulate(compiled(LONG), one_sm(), mode="chip")
    assert result.tensor_busy_cycles / result.cycles > 0.75


@pytest.mark.parametrize("head_dim", CONFIGS)
@pytest.mark.parametrize(
    ("queries", "keys", "causal"), [(512, 512, True), (333, 500, True), (500, 200, True), (70, 333, False)]
)
def test_every_visible_block_is_visited_once_and_masked_where_needed(
    head_dim: int, queries: int, keys: int, causal: bool
) -> None:
    at, config = problem(seqlen_q=queries, seqlen_kv=keys, head_dim=head_dim, causal=causal), CONFIGS[head_dim]
    items, height = fiber_backward_items(at, config), config.tile_m
    for row in (dict(zip(items, values, strict=True)) for values in zip(*items.values(), strict=True)):
        masked = [row["first"] + i * height for i in range(row["masked"])]
        plain = [row["edge"] + i * height for i in range(row["plain"])]
        last_key = min(row["col"] + config.tile_n, keys) - 1
        blocks = range(0, queries, height)
        sees = [r for r in blocks if not causal or min(r + height, queries) - 1 + at.diagonal >= row["col"]]
        assert sorted(plain + masked) == sees
        assert row["steps"] == len(sees) == row["steady"] + row["tail"]
        assert all(row["col"] + config.tile_n <= keys for _ in plain)
        assert all(not causal or r + at.diagonal >= last_key for r in plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tile_m": 64}, "registers hold tile_m = 32 queries of a step"),
        ({"groups": 3}, "and groups = 1; got 32 and 3"),
        ({"stages": 2}, "stages must be 3 to"),
        ({"pace": 16}, "pace must be 1 to 15"),
        ({"groups": 2}, "and groups = 1; got 32 and 2"),
    ],
)
def test_what_cannot_run_is_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        compiled(problem(), **changes)


def test_a_head_size_without_a_kernel_is_refused() -> None:
    with pytest.raises(UserError, match="takes fp16, bf16 and head sizes 64, 128; got 'fp16' and 256"):
        SM80_FIBER_BACKWARD.candidates(problem(head_dim=256), one_sm())


def test_more_stages_than_fit_are_refused() -> None:
    config = replace(CONFIGS[128], stages=9)
    with pytest.raises(UserError, match="as shared memory holds"):
        SM80_FIBER_BACKWARD.build(problem(), config, one_sm(), {})
