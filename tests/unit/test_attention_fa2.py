"""Does FlashAttention 2 compute the right numbers without hazards, and take the tiles and order of the open kernel?"""

import dataclasses
from typing import Any

import pytest

from attention_variants import VARIANTS
from heddle.errors import UserError
from heddle.ir.tile import Op, StoreShared, Sync
from heddle.ir.tile_text import parse_program, print_program
from heddle.ir.tile_verify import verify
from heddle.kernels.attention.forward.sm80_fa2_config import fa2_work_items
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.pipeline import tile_program, warp_program
from heddle.study.checks import check, check_sizes
from heddle.study.requests import request


def verdict(gpu: str = "a100", kernel: str = "attention", **params: Any) -> dict[str, Any]:
    return check(request(kernel, gpu, texts=check_sizes(kernel, params)))


def problem(**changes: Any) -> AttentionProblem:
    sizes = {"batch": 2, "heads_q": 2, "heads_kv": 1, "seqlen_q": 256, "seqlen_kv": 256, "head_dim": 128}
    return AttentionProblem(**{**sizes, "causal": True, "dtype": "fp16", **changes})


CONFIG = AttentionConfig(schedule="fa2", tile_m=128, tile_n=64, stages=1, groups=4, order="launch")
QUICK = [
    {"head_dim": 128, "causal": 1, "seqlen_q": 200, "seqlen_kv": 333},
    {"head_dim": 64, "seqlen_q": 200, "dtype": "bf16"},
    {"head_dim": 128, "heads_q": 4, "heads_kv": 1, "seqlen_q": 333, "seqlen_kv": 20, "causal": 1},
]


@pytest.mark.parametrize("params", QUICK, ids=str)
def test_numbers_are_right_and_nothing_races(params: dict[str, Any]) -> None:
    row = verdict(**params)
    assert row["passed"], (row["relative_error"], row["hazards"])


def test_the_same_code_runs_on_h100() -> None:
    row = verdict("h100", "attention_fa2", head_dim=64, causal=1, seqlen_q=200, seqlen_kv=333)
    assert row["passed"], (row["relative_error"], row["hazards"])


def test_the_logarithm_of_the_sums_is_written_for_a_backward_pass() -> None:
    row = verdict("a100", "attention_lse", head_dim=128, causal=1, seqlen_q=133, seqlen_kv=150, heads_q=1)
    assert {output["tensor"] for output in row["outputs"]} == {"O", "LSE"}
    assert row["passed"], (row["outputs"], row["hazards"])


@pytest.mark.slow
@pytest.mark.parametrize("params", VARIANTS, ids=str)
def test_all_variants(params: dict[str, Any]) -> None:
    row = verdict(**params)
    assert row["passed"], (row["relative_error"], row["hazards"])


def test_without_the_meeting_before_k_is_overwritten_a_hazard_is_reported() -> None:
    a100 = machine("a100").replace(sms=2)
    params = find_kernel("attention").check({"batch": 1, "heads_q": 1, "seqlen_q": 128, "seqlen_kv": 512})
    tiles = tile_program("attention", a100, params)
    [role] = tiles.roles
    program = warp_program(dataclasses.replace(tiles, roles=(_never_meet(role),)), a100)
    row = check(dataclasses.replace(request("attention", a100, texts=params), machine=a100), program=program)
    assert any("k" in hazard and "sm80_fa2.py" in hazard for hazard in row["hazards"])


def _never_meet(value: Any) -> Any:
    """The same without barriers; each warp still waits for its own copies."""
    kept = tuple(op for op in value.body if not isinstance(op, Sync))
    body = tuple(_never_meet(op) if hasattr(op, "body") else op for op in kept)
    return dataclasses.replace(value, body=body)


@pytest.mark.parametrize(
    ("gpu", "head_dim", "expected"),
    [
        ("a100", 64, "fa2 128x128 g4 s1 launch"),
        ("a100", 128, "fa2 128x64 g4 s1 launch"),
        ("a100", 256, "fa2 128x64 g8 s1 launch"),
        ("h100", 128, "fa2 128x64 g4 s1 launch"),
        ("h100", 256, "fa2 64x64 g4 s1 launch"),
    ],
)
def test_tiles_are_those_of_the_open_kernel(gpu: str, head_dim: int, expected: str) -> None:
    assert find_kernel("attention_fa2").candidates(machine(gpu), {"head_dim": head_dim})[0].label() == expected


def test_the_grid_goes_through_rows_then_sequences_then_heads() -> None:
    items = fa2_work_items(problem(), CONFIG)
    assert list(zip(items["q_plane"], items["row"], strict=True)) == [
        (0, 0), (0, 128), (2, 0), (2, 128), (1, 0), (1, 128), (3, 0), (3, 128),
    ]  # fmt: skip
    assert items["kv_plane"] == [0, 0, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize(("seqlen_kv", "masked"), [(256, 1), (250, 2)])
def test_a_causal_tile_masks_two_blocks_and_a_third_at_odd_lengths(seqlen_kv: int, masked: int) -> None:
    items = fa2_work_items(problem(batch=1, heads_q=1, seqlen_kv=seqlen_kv), CONFIG)
    assert items["masked"][-1] == masked  # besides the first one


def test_the_loop_without_masks_begins_below_the_masked_blocks() -> None:
    items = fa2_work_items(problem(batch=1, heads_q=1), CONFIG)
    assert (items["last"], items["edge"]) == ([64, 192], [0, 128])


def test_a_copy_is_always_in_flight_while_the_warps_compute() -> None:
    [role] = tile_program("attention", machine("a100"), {"seqlen_q": 512}).roles
    kinds = [type(op).__name__ for op in _loop(role)]
    assert kinds.count("CpAsync") == 2
    assert [kinds[i + 1] for i, kind in enumerate(kinds) if kind == "CpAsyncWait"] == ["Sync", "Sync"]
    assert kinds.index("CpAsync") < kinds.index("RowReduce") < kinds.index("CpAsyncWait")


def _loop(value: Any) -> tuple[Op, ...]:
    """The body of the innermost loop."""
    inner = [op for op in value.body if hasattr(op, "body")]
    return _loop(inner[-1]) if inner else value.body


def test_o_leaves_through_shared_memory_by_16_bytes_a_lane() -> None:
    a100 = machine("a100")
    tiles = tile_program("attention", a100, {"seqlen_q": 512})
    stores = [row for row in warp_program(tiles, a100).instructions if row.op == "STG"]
    assert {row.bytes for row in stores} == {32 * 16}
    assert any(isinstance(op, StoreShared) for op in tiles.roles[0].body[0].body)  # type: ignore[attr-defined]


def test_more_than_one_stage_is_refused() -> None:
    kernel, a100 = find_kernel("attention"), machine("a100")
    config = dataclasses.replace(kernel.candidates(a100, {})[0], stages=2)
    with pytest.raises(UserError, match="one block of K and of V"):
        kernel.build(a100, {}, config)


def test_fp8_is_refused() -> None:
    with pytest.raises(UserError, match="takes fp16, bf16"):
        find_kernel("attention").candidates(machine("a100"), {"dtype": "fp8_e4m3"})


def test_a_sum_over_columns_that_do_not_exist_is_refused() -> None:
    text = print_program(tile_program("attention", machine("a100"), {"seqlen_q": 512}))
    assert "src_col=48 src_cols=16" in text
    with pytest.raises(UserError, match="16 columns from column 56 on do not lie inside 's' of 64"):
        verify(parse_program(text.replace("src_col=48 src_cols=16", "src_col=56 src_cols=16")))
