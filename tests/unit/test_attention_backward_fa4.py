"""Does the backward pass of FlashAttention 4 on B200 with one CTA give the gradients, in the open kernel's order?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import heddle
from heddle.errors import UserError
from heddle.ir.warp import Instruction, WarpProgram
from heddle.kernels.attention.backward.kernel import ATTENTION_BWD
from heddle.kernels.attention.backward.sm100_fa4_config import Fa4BackwardConfig, backward_items, shared_bytes
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine import machine
from heddle.pipeline import compile_kernel

BLOCK = 128
BARRIERS = 2048
"""Bytes beside the tiles."""
COMPILED = {
    "compute0": (
        {"MUFU": 64, "F2FP": 64, "FFMA2": 32, "FADD2": 32, "FMUL2": 32, "LDS": 32, "FSEL": 64, "STS": 8}
        | {"LDTM": 4, "STTM": 4, "BAR.SYNC": 5, "SYNCS.TRYWAIT": 5},
        439,
    ),
    "matrix": ({"UTCHMMA": 40, "UTCBAR": 6, "SYNCS.TRYWAIT": 5}, 298),
    "reduce": ({"LDTM": 4, "STS": 32, "UTMAREDG": 4, "BAR.SYNC": 8}, 100),
    "load": ({"UTMALDG": 6}, 70),
}
"""Counts of one block of a warp at head size 128, full, and all its instructions, of the open kernel with one CTA.

flash-attn-4 4.0.0b36, FA_DISABLE_2CTA=1, compiled with cutlass-dsl 4.8.1 for sm_100a; its SEL are FSEL here.
"""


def problem(**sizes: Any) -> AttentionProblem:
    """A problem of head size 128, or as given."""
    base = {"batch": 1, "heads_q": 1, "heads_kv": 1, "seqlen_q": 256, "seqlen_kv": 256, "head_dim": 128}
    return AttentionProblem(**{**base, "causal": False, "dtype": "fp16", **sizes})


def one_cta(sizes: dict[str, Any]) -> WarpProgram:
    """The kernel with one CTA."""
    return compile_kernel("attention_bwd", machine("b200"), sizes, Fa4BackwardConfig())


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param({"heads_q": 1, "seqlen_q": 300, "seqlen_kv": 130}, marks=pytest.mark.slow),
        {"heads_q": 2, "heads_kv": 1, "seqlen_q": 150, "seqlen_kv": 100, "causal": 1, "head_dim": 64, "dtype": "bf16"},
        pytest.param({"heads_q": 2, "heads_kv": 1, "seqlen_q": 100, "seqlen_kv": 129}, marks=pytest.mark.slow),
        pytest.param({"heads_q": 1, "seqlen_q": 70, "seqlen_kv": 256, "head_dim": 64}, marks=pytest.mark.slow),
        pytest.param({"heads_q": 4, "heads_kv": 2, "seqlen_q": 97, "seqlen_kv": 257}, marks=pytest.mark.slow),
        pytest.param({"seqlen_q": 333, "seqlen_kv": 100, "causal": 1}, marks=pytest.mark.slow),
        pytest.param({"seqlen_q": 512, "dtype": "bf16", "causal": 1}, marks=pytest.mark.slow),
        pytest.param({"head_dim": 64, "seqlen_q": 200, "seqlen_kv": 333, "causal": 1}, marks=pytest.mark.slow),
    ],
)
def test_gradients_are_right(sizes: dict[str, Any]) -> None:
    found = heddle.check("attention_bwd", "b200", pairs=0, **sizes)
    assert found["passed"], (found["outputs"], found["hazards"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [{"heads_q": 1, "seqlen_q": 199, "causal": 1}, {"heads_kv": 1, "seqlen_q": 97, "seqlen_kv": 130}]
)
def test_the_launches_give_the_gradients(sizes: dict[str, Any]) -> None:
    found = heddle.check("attention", "b200", direction="bwd", **{"main.pairs": 0, **sizes})
    assert found["passed"], (found["outputs"], found["hazards"])


@pytest.mark.parametrize(("head_dim", "columns"), [(64, 384), (128, 512)])
def test_scores_their_gradient_and_two_sums_fill_tensor_memory(head_dim: int, columns: int) -> None:
    sizes = {"batch": 1, "heads_q": 1, "seqlen_q": 256, "head_dim": head_dim}
    program = ATTENTION_BWD.simt_build(machine("b200"), sizes, Fa4BackwardConfig())
    assert sum(memory.cols for memory in program.tensor_memory if memory.overlays is None) == columns


def test_the_widest_tile_takes_nearly_all_of_shared_memory() -> None:
    limit = machine("b200").shared_memory_bytes_per_cta
    assert limit - 4096 < shared_bytes(problem()) <= limit


@pytest.mark.parametrize("sizes", [{"heads_kv": 2}, {"heads_kv": 1, "head_dim": 64}])
def test_shared_memory_holds_what_is_stated(sizes: dict[str, Any]) -> None:
    sizes = {"heads_q": 2, **sizes}
    program = compile_kernel(
        "attention_bwd", machine("b200"), {"batch": 1, "seqlen_q": 256, **sizes}, Fa4BackwardConfig()
    )
    assert shared_bytes(problem(**sizes)) - BARRIERS <= program.shared_memory_bytes <= shared_bytes(problem(**sizes))


def test_a_block_has_the_instructions_of_the_compiled_kernel() -> None:
    program = compile_kernel(
        "attention_bwd", machine("b200"), {"batch": 1, "heads_q": 1, "seqlen_q": 512}, Fa4BackwardConfig()
    )
    for role, (wanted, total) in COMPILED.items():
        mix = Counter(row.op for row in first_loop(program, role))
        assert {op: mix[op] for op in wanted} == wanted
        assert sum(mix.values()) <= total


def first_loop(program: WarpProgram, role: str) -> list[Instruction]:
    """The first loop of a role."""
    start = next(row.entry for row in program.roles if row.name == role)
    end = next(pc for pc in range(start, len(program.instructions)) if program.instructions[pc].op == "LOOP")
    first = program.instructions[end].target
    assert first is not None
    return list(program.instructions[first : end + 1])


@pytest.mark.parametrize("sizes", [{"seqlen_q": 333}, {"seqlen_kv": 300}, {"head_dim": 64, "seqlen_kv": 1000}])
def test_causal_tiles_leave_out_only_blocks_without_a_visible_key(sizes: dict[str, Any]) -> None:
    of_head = problem(causal=True, **sizes)
    items = backward_items(of_head, Fa4BackwardConfig())
    for key, first, blocks in zip(*(items[name] for name in ("key", "first", "blocks")), strict=True):
        assert not [query for query in range(first) if key <= query + of_head.diagonal]
        assert min(first + BLOCK, of_head.seqlen_q) - 1 + of_head.diagonal >= key
        assert first + (blocks - 1) * BLOCK < of_head.seqlen_q <= first + blocks * BLOCK


def test_tiles_go_head_by_head_keys_fastest() -> None:
    of_heads = problem(causal=True, heads_q=2, heads_kv=2, seqlen_kv=300)
    items = backward_items(of_heads, Fa4BackwardConfig())
    assert list(zip(items["q_plane"], items["key"], strict=True)) == [(p, k) for p in range(2) for k in (0, 128, 256)]


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"head_dim": 256}, "has head sizes 64, 128, got 256"),
        ({"head_dim": 64, "pairs": 1}, "pairs = 1 at head size 64"),
        ({"tile_m": 64}, "takes tiles of 128 queries x 128 keys; got 64 x 128"),
    ],
)
def test_what_the_kernel_cannot_run_is_refused(sizes: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        heddle.compile("attention_bwd", "b200", seqlen_q=256, **sizes)
