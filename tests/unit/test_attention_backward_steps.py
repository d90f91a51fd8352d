"""Are the backward passes for machines with some of FIBER's features right, and is what orders them needed?"""

from __future__ import annotations

from typing import Any

import pytest

from fiber_backward import SmallBackward
from fiber_backward_h100 import SMALL as H100
from native_mutants import killed_by, mutants

FS = "+DP +FS"
CELLS = {"h100 fs": H100.on_step(FS)}
"""The forms that are not those of another step."""
ODD = [
    {"seqlen_q": 70, "seqlen_kv": 140, "causal": True},
    {"heads_q": 2, "seqlen_q": 130, "seqlen_kv": 100, "head_dim": 64, "dtype": "bf16"},
    {"heads_q": 3, "seqlen_q": 200, "seqlen_kv": 257, "head_dim": 64, "causal": True},
    {"heads_q": 2, "heads_kv": 2, "seqlen_q": 333, "seqlen_kv": 20, "causal": True},
]
MUTANTS = 40
"""Of a form, evenly over its code, in the slow test."""
SCHEDULES = 10
"""Random schedules under which a survivor has to be right."""


@pytest.fixture(params=list(CELLS))
def cell(request: pytest.FixtureRequest) -> SmallBackward:
    return CELLS[request.param]


def test_gradients_are_right_and_no_hazard_is_found(cell: SmallBackward) -> None:
    report = cell.checked(cell.problem())
    assert report.ok, report.lines()


@pytest.mark.slow
@pytest.mark.parametrize("changes", ODD, ids=str)
def test_odd_sizes_are_right(cell: SmallBackward, changes: dict[str, Any]) -> None:
    report = cell.checked(cell.problem(**changes))
    assert report.ok, report.lines()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_gradients_are_right_under_random_schedules(cell: SmallBackward, seed: int) -> None:
    report = cell.checked(cell.problem(), seed=seed)
    assert report.ok, report.lines()


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_mutants_are_rejected_or_reported(cell: SmallBackward) -> None:
    wanted = cell.problem(seqlen_q=256, seqlen_kv=384)
    every = list(mutants(cell.compiled(wanted)))
    chosen = every[:: max(1, len(every) // MUTANTS)]
    programs = dict(chosen)
    fates = {name: killed_by(mutant, cell.one_sm(), lambda m: cell.checked(wanted, m)) for name, mutant in chosen}
    survivors = [name for name, found in fates.items() if not found]
    left = [
        name
        for name in survivors
        if not all(cell.checked(wanted, programs[name], seed).ok for seed in range(1, SCHEDULES + 1))
    ]
    assert len(left) <= 0.05 * len(fates), left
