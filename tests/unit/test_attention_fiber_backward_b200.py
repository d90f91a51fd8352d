"""Does the FIBER-native backward pass of B200 compute right gradients, with first operands in registers?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fiber_backward_b200 import checked, compiled, one_sm, problem
from heddle.errors import UserError
from heddle.kernels.attention.backward.sm100_fiber_config import FiberBackward100Config, fiber_backward_items
from heddle.lang import Builder, kernel
from heddle.passes.verify_channels import VerifyChannels
from native_mutants import killed_by, mutants

CAUSAL = problem(causal=True)
SLOW = [
    problem(heads_q=2, seqlen_q=100, seqlen_kv=130, dtype="bf16"),
    problem(heads_q=4, heads_kv=2, seqlen_q=97, seqlen_kv=257),
    problem(seqlen_q=600, causal=True, dtype="bf16"),
    problem(seqlen_q=129, seqlen_kv=256),
    problem(batch=2, seqlen_q=70, seqlen_kv=500, causal=True),
    problem(head_dim=64, causal=True),
    problem(head_dim=64, heads_q=4, heads_kv=2, seqlen_q=97, seqlen_kv=257, dtype="bf16"),
    problem(head_dim=64, seqlen_q=600, causal=True, dtype="bf16"),
    problem(head_dim=64, batch=2, heads_q=2, seqlen_q=70, seqlen_kv=200, causal=True),
]
PLAIN = problem(seqlen_q=512, seqlen_kv=128)
SHORT = problem(head_dim=64, seqlen_q=100)
STEP, ROWS = 64, 128
QUICK, REST = 150, 40
"""In the quick and the slow test every so many of the mutants."""
SCHEDULES = 5
"""Random schedules under which a survivor has to be right."""


@pytest.mark.parametrize("wanted", [CAUSAL, *(pytest.param(p, marks=pytest.mark.slow) for p in SLOW)], ids=str)
def test_gradients_are_right_and_no_hazard_is_found(wanted: Any) -> None:
    report = checked(wanted)
    assert report.ok, report.lines()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_gradients_are_right_under_a_random_schedule(seed: int, head_dim: int) -> None:
    report = checked(problem(causal=True, head_dim=head_dim), seed=seed)
    assert report.ok, report.lines()


def test_shared_memory_feeds_second_operands_only() -> None:
    products = [row for row in compiled(PLAIN).instructions if row.op == "WMMA.TM"]
    assert products
    assert {row.form for row in products} == {"rs"}


def test_of_short_heads_dq_alone_has_both_operands_in_shared_memory() -> None:
    """Products of 128 rows and 128 that are summed over, beside eight of four products of 64 queries."""
    forms = Counter(row.form for row in compiled(SHORT).instructions if row.op == "WMMA.TM")
    assert forms == {"ss": 128 // 16, "rs": 2 * 4 * 64 // 16}


def test_p_and_ds_do_not_pass_through_tensor_memory() -> None:
    mix = Counter(row.op for row in compiled(PLAIN).instructions)
    assert (mix["STTM"], mix["UTCHMMA"]) == (0, 0)
    assert mix["MUFU"] == 2 * STEP  # a row a lane, two steps


def broken() -> list[Any]:
    """Mutants of the bits."""
    others = ("BAR", "DEPBAR)", "SYNCS")
    return [mutant for mutant in mutants(compiled(CAUSAL)) if not any(name in mutant[0] for name in others)]


def test_the_verifier_rejects_every_mutant_of_the_bits() -> None:
    chosen = broken()
    assert len(chosen) > 200
    kept = []
    for name, program in chosen[::QUICK]:
        try:
            VerifyChannels().run(program, one_sm())
        except UserError:
            continue
        kept.append(name)
    assert kept == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_mutants_are_rejected_or_reported(head_dim: int) -> None:
    wanted = problem(causal=True, head_dim=head_dim)
    chosen = dict(list(mutants(compiled(wanted)))[::REST])
    fates = {name: killed_by(mutant, one_sm(), lambda m: checked(wanted, m)) for name, mutant in chosen.items()}
    survivors = [name for name, fate in fates.items() if fate not in ("verifier", "hazard", "run")]
    left = [name for name in survivors if not all(checked(wanted, chosen[name], s + 1).ok for s in range(SCHEDULES))]
    assert len(left) <= 0.05 * len(fates), left


def test_items_say_how_many_blocks_the_order_of_the_products_takes() -> None:
    items = fiber_backward_items(problem(seqlen_q=600, seqlen_kv=256, causal=True))
    names = ("only", "one", "two", "inner", "blocks", "first", "last")
    for only, one, two, inner, blocks, first, last in zip(*(items[name] for name in names), strict=True):
        assert only + one + two == 1
        assert only + 2 * one + (3 + inner) * two == blocks
        assert last == first + blocks * ROWS - STEP


@pytest.mark.parametrize(
    ("sizes", "changes", "text"),
    [
        ({"head_dim": 256}, {}, "head sizes 64, 128; got 'fp16' and 256"),
        ({}, {"queries": 2}, "queries must be 3 or more, got 2"),
        ({}, {"queries": 6}, "takes .* bytes of shared memory"),
    ],
)
def test_what_the_kernel_cannot_run_is_refused(sizes: dict[str, Any], changes: dict[str, int], text: str) -> None:
    with pytest.raises(UserError, match=text):
        compiled(problem(**sizes), **changes)


def test_a_label_names_the_steps() -> None:
    assert FiberBackward100Config().label() == "fiber 64x128 q4 do2 launch"


def test_a_transposed_load_is_refused_where_no_lane_has_a_row() -> None:
    @kernel
    def turned(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        tile, shared = k.registers("tile", (64, 64), "fp16", warps=(4, 1)), k.shared("s", (64, 64), "fp16")
        with k.role("one", warps=4, registers=128):
            k.load(tile, shared[:], transposed=True)

    with pytest.raises(UserError, match="a transposed load is for sm_100 in mode fiber"):
        turned.build("sm_90")
