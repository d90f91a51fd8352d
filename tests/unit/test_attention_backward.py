"""Does the backward pass of FlashAttention 2 compute right gradients without hazards, as the open kernel does it?"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.ir.tile import Op, Sync
from heddle.ir.tile_text import parse_program, print_program
from heddle.kernels.attention.backward.shape import BackwardConfig
from heddle.kernels.attention.backward.sm80_fa2_config import CONFIGS, bwd_work_items
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, kernel
from heddle.machine import machine
from heddle.study.checks import check
from heddle.study.requests import request
from heddle.study.runs import candidates

NAME = "attention_bwd"
QUICK = [
    ("simt", {"head_dim": 128, "causal": 1, "seqlen_q": 130, "seqlen_kv": 140}),
    ("cuda-native", {"head_dim": 64, "heads_q": 2, "heads_kv": 1, "seqlen_q": 140, "seqlen_kv": 70, "dtype": "bf16"}),
]
SLOW = [
    ("simt", {"head_dim": 256, "seqlen_q": 70, "seqlen_kv": 65}),
    ("simt", {"head_dim": 64, "causal": 1, "seqlen_q": 333, "seqlen_kv": 500, "heads_q": 4, "heads_kv": 2}),
    ("simt", {"head_dim": 128, "causal": 1, "seqlen_q": 333, "seqlen_kv": 20}),
    ("cuda-native", {"head_dim": 128, "seqlen_q": 512, "dtype": "bf16"}),
    ("cuda-native", {"head_dim": 256, "causal": 1, "seqlen_q": 200, "seqlen_kv": 333}),
]


def verdict(mode: str, **params: Any) -> dict[str, Any]:
    return check(request(NAME, "a100", mode=mode, texts={"batch": 1, "heads_q": 1, **params}))


def problem(**changes: Any) -> AttentionProblem:
    sizes = {"batch": 1, "heads_q": 2, "heads_kv": 1, "seqlen_q": 512, "seqlen_kv": 512, "head_dim": 128}
    return AttentionProblem(**{**sizes, "causal": False, "dtype": "fp16", **changes})


@pytest.mark.parametrize(("mode", "params"), QUICK, ids=str)
def test_gradients_are_right_and_nothing_races(mode: str, params: dict[str, Any]) -> None:
    row = verdict(mode, **params)
    assert row["passed"], (row["outputs"], row["hazards"])


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "params"), SLOW, ids=str)
def test_more_shapes(mode: str, params: dict[str, Any]) -> None:
    row = verdict(mode, **params)
    assert row["passed"], (row["outputs"], row["hazards"])


@pytest.mark.parametrize("place", range(3))
def test_each_meeting_of_a_step_is_needed(place: int) -> None:
    """Before Q and dO are read, before P and dS are, before dO is overwritten."""
    asked = request(NAME, "a100", texts={"batch": 1, "heads_q": 1, "seqlen_q": 128, "seqlen_kv": 64})
    tiles = pipeline.tile_program(NAME, asked.machine, asked.params, candidates(asked)[0])
    [role] = tiles.roles
    program = pipeline.warp_program(dataclasses.replace(tiles, roles=(_without(role, place),)), asked.machine)
    assert check(asked, program=program)["hazards"]


def _without(value: Any, place: int) -> Any:
    """The same, each body without its meeting number `place`, from those that have three."""
    meetings = [op for op in value.body if isinstance(op, Sync)]
    dropped = meetings[place] if len(meetings) == 3 else None
    kept: list[Op] = [op for op in value.body if op is not dropped]
    return dataclasses.replace(value, body=tuple(_without(op, place) if hasattr(op, "body") else op for op in kept))


@pytest.mark.parametrize("head_dim", CONFIGS)
@pytest.mark.parametrize(
    ("queries", "keys", "causal"), [(512, 512, True), (333, 500, True), (500, 200, True), (70, 333, False)]
)
def test_every_visible_block_is_visited_once_and_masked_where_needed(
    head_dim: int, queries: int, keys: int, causal: bool
) -> None:
    at, config = problem(seqlen_q=queries, seqlen_kv=keys, head_dim=head_dim, causal=causal), CONFIGS[head_dim]
    items = bwd_work_items(at, config)
    for row in (dict(zip(items, values, strict=True)) for values in zip(*items.values(), strict=True)):
        plain = [row["first"] - i * config.tile_m for i in range(row["loop_plain"])]
        masked = [row["edge"] - i * config.tile_m for i in range(row["loop_masked"])]
        (masked if row["last_masked"] else plain).append(row["end"])
        last_key = min(row["col"] + config.tile_n, keys) - 1
        sees = [
            r
            for r in range(0, queries, config.tile_m)
            if not causal or r + config.tile_m - 1 + at.diagonal >= row["col"]
        ]
        assert sorted(plain + masked) == sees
        assert all(row["col"] + config.tile_n <= keys for _ in plain)
        assert all(not causal or r + at.diagonal >= last_key for r in plain)


def main_loop(head_dim: int) -> Counter[str]:
    """Return how often each operation is in the loop over blocks without masks."""
    params = {"batch": 1, "heads_q": 1, "seqlen_q": 256, "head_dim": head_dim}
    program = pipeline.compile_kernel(NAME, machine("a100"), params)
    first, last = [(row.target, pc) for pc, row in enumerate(program.instructions) if row.op == "LOOP"][-1]
    assert first is not None
    return Counter(row.op for row in program.instructions[first : last + 1])


@pytest.mark.parametrize(("head_dim", "tile"), [(64, (128, 128)), (128, (64, 128))])
def test_a_step_has_five_products_and_an_atomic_add_for_each_word_of_dq(head_dim: int, tile: tuple[int, int]) -> None:
    mix, (rows, keys) = main_loop(head_dim), tile
    lanes = 8 * 32
    assert mix["HMMA"] == 5 * rows * keys * head_dim // (16 * 8 * 16) // 8
    assert mix["RED"] == rows * head_dim // lanes
    assert mix["MUFU"] == rows * keys // lanes
    assert mix["STS"] == 2 * rows * keys // (2 * lanes)
    assert (mix["BAR.SYNC"], mix["DEPBAR"], mix["LDGSTS"]) == (3, 1, 2 * rows * head_dim * 2 // (16 * lanes))


def test_the_program_as_text_is_the_same() -> None:
    asked = request(NAME, "a100", texts={"batch": 1, "heads_q": 1, "seqlen_q": 64})
    tiles = pipeline.tile_program(NAME, asked.machine, asked.params, candidates(asked)[0])
    assert parse_program(print_program(tiles)) == tiles


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"tile_m": 128}, "bytes of shared memory"),
        ({"keys_rows": 3}, "a divisor of 8"),
        ({"tile_n": 96}, "do not divide"),
        ({"stages": 3}, "1 or 2 stages"),
    ],
)
def test_what_cannot_run_is_refused(params: dict[str, int], text: str) -> None:
    with pytest.raises(UserError, match=text):
        _built(params)


def _built(params: dict[str, int]) -> None:
    asked = request(NAME, "a100", texts=params)
    pipeline.tile_program(NAME, asked.machine, asked.params, candidates(asked)[0])


@pytest.mark.parametrize(
    ("architecture", "dtype", "fiber", "text"),
    [("sm_90", "fp16", True, "of mode fiber is a pool tensor of sm_80"), ("sm_80", "fp8_e4m3", False, "16-bit")],
)
def test_a_transposed_first_operand_is_refused_where_it_does_not_exist(
    *, architecture: str, dtype: str, fiber: bool, text: str
) -> None:
    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        a, b = k.shared("a", (32, 64), dtype), k.shared("b", (64, 32), dtype)
        acc = k.registers("acc", (64, 64), "fp32", warps=(4, 1))
        if fiber:
            given = k.token("given")  # a kernel with bits multiplies by wefts
            k.set_fiber_num(one=4)
        with k.role("one", warps=None if fiber else 4, registers=128):
            if fiber:
                given.give()
            k.mma(acc, a[:], b[:], a_transposed=True, accumulate=False)

    with pytest.raises(UserError, match=text):
        small.build(architecture)


def test_other_grids_of_warps_give_the_same_numbers() -> None:
    row = verdict("simt", seqlen_q=128, scores_rows=4, keys_rows=2, queries_rows=4, stages=1)
    assert (row["passed"], row["hazards"]) == (True, [])


def test_labels_name_the_open_kernels_tiles() -> None:
    assert [config.label() for config in CONFIGS.values()] == [
        "fa2 128x128 w8 s2",
        "fa2 64x128 w8 s2",
        "fa2 64x64 w8 s1",
    ]
    assert isinstance(CONFIGS[64], BackwardConfig)
