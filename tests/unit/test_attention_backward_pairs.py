"""Does the backward pass of FlashAttention 4 by pairs of CTAs give the gradients, with what pairs are to save?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import heddle
from heddle.ir.warp import WarpProgram
from heddle.kernels.attention.backward.kernel import ATTENTION_BWD
from heddle.kernels.attention.backward.sm100_fa4_config import (
    Fa4BackwardConfig,
    backward_items,
    pair_shared_bytes,
    registers,
)
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine import machine
from heddle.pipeline import compile_kernel
from pair_mutants import killed, mutants, program

BARRIERS = 2048
"""Bytes beside the tiles."""
OPEN_BYTES = 231424
"""Shared memory of a CTA that the open kernel's comment gives for pairs."""
BLOCK = {
    "compute0": {
        **{"MUFU": 64, "F2FP": 64, "FFMA2": 32, "FADD2": 32, "FMUL2": 32, "LDS": 32, "FSEL": 64, "STS": 8, "LDTM": 4},
        **{"STTM": 4, "BAR.SYNC": 5, "SYNCS.TRYWAIT": 5, "SYNCS.ARRIVE": 5, "SYNCS.EXPECT": 1, "UBLKCP.S.S": 1},
    },
    "compute1": {"BAR.SYNC": 5, "SYNCS.ARRIVE": 5, "SYNCS.EXPECT": 0, "UBLKCP.S.S": 0},
    "matrix": {"UTCHMMA": 48, "UTCBAR": 7, "SYNCS.TRYWAIT": 8},
    "reduce": {"LDTM": 2, "STS": 16, "UTMAREDG": 8, "BAR.SYNC": 16},
    "load": {"UTMALDG": 8, "SYNCS.TRYWAIT": 5},
    "relay": {"SYNCS.TRYWAIT": 1, "SYNCS.ARRIVE": 1},
}
"""Counts of one block of a warp, full, read off the open kernel's code (flash_bwd_sm100.py at 0251105)."""


def compiled(**sizes: Any) -> WarpProgram:
    """The kernel, for two blocks of queries and one pair of blocks of keys unless given."""
    base = {"batch": 1, "heads_q": 1, "seqlen_q": 512, "seqlen_kv": 256}
    return compile_kernel("attention_bwd", machine("b200"), {**base, **sizes})


@pytest.mark.parametrize(
    "sizes",
    [
        {"heads_q": 2, "heads_kv": 1, "seqlen_q": 150, "seqlen_kv": 130, "causal": 1, "dtype": "bf16"},
        pytest.param({"seqlen_q": 300, "seqlen_kv": 130}, marks=pytest.mark.slow),
        pytest.param({"heads_q": 2, "heads_kv": 1, "seqlen_q": 97, "seqlen_kv": 257}, marks=pytest.mark.slow),
        pytest.param({"seqlen_q": 333, "seqlen_kv": 300, "causal": 1}, marks=pytest.mark.slow),
        pytest.param({"seqlen_q": 64, "seqlen_kv": 64}, marks=pytest.mark.slow),
        pytest.param(
            {"batch": 2, "heads_q": 4, "heads_kv": 2, "seqlen_q": 100, "seqlen_kv": 520, "causal": 1},
            marks=pytest.mark.slow,
        ),
        pytest.param({"seqlen_q": 520, "seqlen_kv": 200, "causal": 1, "dtype": "bf16"}, marks=pytest.mark.slow),
    ],
)
def test_gradients_of_pairs_are_right(sizes: dict[str, Any]) -> None:
    found = heddle.check("attention_bwd", "b200", **{"batch": 1, "heads_q": 1, **sizes})
    assert found["passed"], (found["outputs"], found["hazards"])


@pytest.mark.slow
def test_the_launches_around_pairs_give_the_gradients() -> None:
    found = heddle.check("attention", "b200", direction="bwd", batch=1, heads_q=2, heads_kv=1, seqlen_q=199, causal=1)
    assert found["passed"], (found["outputs"], found["hazards"])


def test_pairs_are_what_the_open_kernel_takes_at_head_size_128() -> None:
    for head_dim, pairs in ((64, 0), (128, 1)):
        (config,) = ATTENTION_BWD.simt_candidates(machine("b200"), {"seqlen_q": 256, "head_dim": head_dim})
        assert config == Fa4BackwardConfig(pairs=pairs)


@pytest.mark.parametrize(("causal", "pairs", "wanted"), [(0, 1, (136, 136)), (1, 1, (136, 136)), (1, 0, (136, 144))])
def test_registers_follow_form_and_mask(causal: int, pairs: int, wanted: tuple[int, int]) -> None:
    problem = AttentionProblem(
        batch=1, heads_q=1, heads_kv=1, seqlen_q=128, seqlen_kv=128, head_dim=128, causal=bool(causal), dtype="fp16"
    )
    assert registers(problem, Fa4BackwardConfig(pairs=pairs)) == wanted


def test_a_cta_has_the_shared_memory_of_the_open_kernels() -> None:
    built = compiled()
    problem = AttentionProblem(
        batch=1, heads_q=1, heads_kv=1, seqlen_q=512, seqlen_kv=256, head_dim=128, causal=False, dtype="fp16"
    )
    assert pair_shared_bytes(problem) == OPEN_BYTES
    assert OPEN_BYTES - BARRIERS <= built.shared_memory_bytes <= OPEN_BYTES


def test_a_block_has_the_instructions_of_the_open_code() -> None:
    built = compiled()
    for role, wanted in BLOCK.items():
        mix = Counter(built.instructions[pc].op for pc in block_of(built, role))
        assert {op: mix[op] for op in wanted} == wanted, role


def block_of(built: WarpProgram, role: str) -> range:
    """The loop of a role over blocks."""
    start = next(row.entry for row in built.roles if row.name == role)
    end = next(pc for pc in range(start, len(built.instructions)) if built.instructions[pc].op == "LOOP")
    first = built.instructions[end].target
    assert first is not None
    return range(first, end + 1)


def test_a_cta_adds_half_of_dq_for_the_keys_of_both() -> None:
    moved = sum(row.bytes for row in compiled().instructions if row.op == "UTMAREDG")
    assert moved == 128 * 128 * 4 // 2


def test_items_of_pairs_are_two_blocks_of_keys() -> None:
    problem = AttentionProblem(
        batch=1, heads_q=1, heads_kv=1, seqlen_q=700, seqlen_kv=700, head_dim=128, causal=True, dtype="fp16"
    )
    items = backward_items(problem, Fa4BackwardConfig(pairs=1))
    assert (items["key"], items["first"], items["last"]) == ([0, 256, 512], [0, 256, 512], [640, 640, 640])


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_every_wait_and_arrival_of_a_pair_is_needed() -> None:
    of = program()
    assert not killed(of)
    survivors = Counter(name for name, mutant in mutants(of) if not killed(mutant))
    assert survivors == Counter(NOT_NEEDED)


NOT_NEEDED = [
    # the other group waits, and both meet before they read the row sums
    *((f"compute{group}", "SYNCS.TRYWAIT", "dpsum_full") for group in (0, 1)),
    # the first phase follows from P
    ("matrix", "SYNCS.TRYWAIT", "ds_full"),
    # nothing follows the last block
    *(("matrix", "UTCBAR", name) for name in ("q_across_empty", "ds_empty")),
    # what is loaded first is loaded into memory that nobody has used
    *(("load", "SYNCS.TRYWAIT", name) for name in ("q_empty", "lse_empty", "do_empty", "dpsum_empty")),
]
"""Role, instruction and barrier of the mutants that are right."""
