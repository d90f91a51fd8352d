"""Are the backward passes for machines with some of FIBER's features right, and is what orders them needed?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agreement import differences
from fiber_backward import SmallBackward, simulated
from fiber_backward_a100 import SMALL as A100
from fiber_backward_b200 import SMALL as B200
from fiber_backward_h100 import SMALL as H100
from heddle.errors import UserError
from heddle.kernels.attention.backward.kernel import ATTENTION_BWD
from heddle.kernels.attention.backward.launches import backward_launches
from heddle.kernels.attention.shape import AttentionProblem
from heddle.study.features import STEPS
from native_mutants import killed_by, mutants

LITERAL, DP, FS, WHOLE = (step.name for step in STEPS)
Cell = tuple[SmallBackward, AttentionProblem]


def cell_of(small: SmallBackward, step: str, sms: int = 1, **changes: Any) -> Cell:
    """Return a form and a small problem."""
    return dataclasses.replace(small, sms=sms).on_step(step), small.problem(**changes)


CELLS: dict[str, Cell] = {
    "h100, statistics in each subpartition": cell_of(H100, FS),
    "h100, P and dS at barriers": cell_of(H100, DP),
    "h100, roles of FlashAttention 3": cell_of(H100, LITERAL, head_dim=64, seqlen_q=256),
    "a100, second operands in each subpartition": cell_of(A100, FS, seqlen_q=64),
    "a100, roles of FlashAttention 2": cell_of(A100, LITERAL, seqlen_q=64),
    "b200, roles of FlashAttention 4": cell_of(B200, LITERAL, head_dim=64),
    "b200, roles of FlashAttention 4 in pairs": cell_of(B200, LITERAL, sms=2),
}
"""Each form once."""
ODD = [
    {"seqlen_q": 70, "seqlen_kv": 140, "causal": True},
    {"heads_q": 2, "seqlen_q": 130, "seqlen_kv": 100, "head_dim": 64, "dtype": "bf16"},
    {"heads_q": 3, "seqlen_q": 200, "seqlen_kv": 257, "head_dim": 64, "causal": True},
    {"heads_q": 2, "heads_kv": 2, "seqlen_q": 333, "seqlen_kv": 20, "causal": True},
]
LONG: dict[str, dict[str, Any]] = {"a100": {"seqlen_q": 256, "seqlen_kv": 384}}
LONG |= {"h100": LONG["a100"], "b200": {"seqlen_q": 512, "seqlen_kv": 256}}
"""Of a head, for mutants: each stage of shared memory is filled three times or more."""
MUTANTS = 40
"""Of a form, evenly over its code, in the slow test."""
SCHEDULES = 10
"""Random schedules under which a survivor has to be right.

There are survivors, as FlashAttention 3 and 4 wait for a free stage before they fill it for the first time, too (here a
work item has a launch of its own), and as waits of H100 and B200 are implied by one for a later product.
"""


@pytest.fixture(params=list(CELLS))
def cell(request: pytest.FixtureRequest) -> Cell:
    return CELLS[request.param]


def test_gradients_are_right_and_no_hazard_is_found(cell: Cell) -> None:
    small, wanted = cell
    report = small.checked(wanted)
    assert report.ok, report.lines()


@pytest.mark.slow
@pytest.mark.parametrize("changes", ODD, ids=str)
def test_odd_sizes_are_right(cell: Cell, changes: dict[str, Any]) -> None:
    small, _ = cell
    report = small.checked(small.problem(**changes))
    assert report.ok, report.lines()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_gradients_are_right_under_random_schedules(cell: Cell, seed: int) -> None:
    small, wanted = cell
    report = small.checked(wanted, seed=seed)
    assert report.ok, report.lines()


@pytest.mark.slow
def test_the_engines_agree(cell: Cell) -> None:
    small, wanted = cell
    program = small.compiled(wanted)
    one, other = (simulated(program, small.one_sm(), engine) for engine in ("reference", "compiled"))
    assert not differences(one, other)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_mutants_are_rejected_or_reported(cell: Cell) -> None:
    small, wanted = cell
    wanted = dataclasses.replace(wanted, **LONG[small.gpu])
    every = list(mutants(small.compiled(wanted)))
    chosen = every[:: max(1, len(every) // MUTANTS)]
    programs = dict(chosen)
    fates = {name: killed_by(mutant, small.one_sm(), lambda m: small.checked(wanted, m)) for name, mutant in chosen}
    survivors = [name for name, found in fates.items() if not found]
    left = [
        name
        for name in survivors
        if not all(small.checked(wanted, programs[name], seed).ok for seed in range(1, SCHEDULES + 1))
    ]
    assert len(left) <= 0.05 * len(fates), left


@pytest.mark.parametrize("small", [A100, H100, B200], ids=lambda small: small.gpu)
@pytest.mark.parametrize("step", [LITERAL, DP])
def test_steps_without_bits_have_a_kernel(small: SmallBackward, step: str) -> None:
    found = small.on_step(step)
    assert not found.kernel.lacks(found.one_sm())
    assert "fine_scheduling" not in found.kernel.needs


def test_h100_without_bits_refuses_what_its_registers_do_not_hold() -> None:
    small, wanted = CELLS["h100, P and dS at barriers"]
    with pytest.raises(UserError, match="without full and empty bits tile_m is 64"):
        small.compiled(wanted, dq="bulk")


@pytest.mark.parametrize("small", [A100, H100, B200], ids=lambda small: small.gpu)
def test_the_step_with_bits_reads_no_other_subpartition(small: SmallBackward) -> None:
    assert not small.on_step(FS).kernel.across


@pytest.mark.parametrize("step", [LITERAL, WHOLE])
def test_the_launches_before_write_what_the_form_reads(step: str) -> None:
    at = A100.on_step(step).one_sm()
    sizes = ATTENTION_BWD.check({"batch": 1, "heads_q": 1})
    main = next(launch for launch in backward_launches(at, sizes, "fiber") if launch.name == "main")
    program = ATTENTION_BWD.build(at, sizes, mode="fiber")
    read = {tensor.name for tensor in program.tensors if tensor.role != "output"}
    assert set(main.feeds) == read - {"Q", "K", "V", "dO", "LSE"}
