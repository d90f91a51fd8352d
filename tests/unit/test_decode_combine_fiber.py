"""The sum of the splits with FIBER: is it right at odd sizes, with each step's features, and are mutants found?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from heddle import interp, sim
from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.study import composites
from heddle.study.checks import check
from heddle.study.features import STEPS
from heddle.study.requests import Request, request
from heddle.study.runs import compiled
from native_mutants import fate, mutants, rejected

SMALL = {"batch": 1, "heads_q": 21, "num_splits": 3}
MANY = {"batch": 1, "heads_q": 5, "num_splits": 35}
SHORT = {"batch": 2, "heads_q": 33, "num_splits": 1, "head_dim": 64, "dtype": "bf16"}
LITERAL, PHASED, BITS, ALL = range(4)
GPUS = ("a100", "h100", "b200")
EVERY, SLOW_EVERY = 7, 20
"""Of so many mutants one is tried."""


def asked(params: dict[str, Any], gpu: str = "a100", step: int = ALL) -> Request:
    """Ask for the launch on a GPU of two SMs with the features of a step."""
    return request("decode_combine", STEPS[step].machine(machine(gpu)).replace(sms=2), mode="fiber", texts=params)


def program(params: dict[str, Any], step: int = ALL) -> WarpProgram:
    """Return the warp program."""
    return compiled(asked(params, step=step))


@pytest.mark.parametrize(
    ("params", "gpu", "step"),
    [
        (SMALL, "a100", ALL),
        (SMALL | {"stages": 1, "groups": 2}, "h100", BITS),
        (SHORT, "b200", ALL),
        (SMALL, "h100", LITERAL),
        (SMALL | {"groups": 2, "parts": 2}, "a100", PHASED),  # two, and one left over
        (SHORT, "b200", LITERAL),
        pytest.param(MANY, "a100", ALL, marks=pytest.mark.slow),  # loops of those in the pool, and three left over
        pytest.param(MANY | {"head_dim": 256}, "h100", ALL, marks=pytest.mark.slow),
        pytest.param(MANY, "b200", PHASED, marks=pytest.mark.slow),
        pytest.param(MANY | {"head_dim": 256, "dtype": "bf16"}, "a100", LITERAL, marks=pytest.mark.slow),
    ],
)
def test_numbers_are_right(params: dict[str, Any], gpu: str, step: int) -> None:
    row = check(asked(params, gpu, step))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize("step", [LITERAL, ALL])
def test_a_part_that_is_not_weighted_is_seen(step: int) -> None:
    found = asked(SMALL, step=step)
    inputs, expected = find_kernel("decode_combine").reference(found.params)
    inputs["LSE_partial"] = np.zeros_like(inputs["LSE_partial"])
    assert not interp.check(compiled(found), found.machine, inputs, expected).ok


def test_a_higher_logarithm_that_comes_late_corrects_what_was_added() -> None:
    found = asked(SMALL | {"groups": 1, "parts": 1}, step=LITERAL)
    inputs, _ = find_kernel("decode_combine").reference(found.params)
    inputs["LSE_partial"][:] = (-90.0, 0.0, 90.0)
    last = inputs["O_partial"].reshape(SMALL["heads_q"], SMALL["num_splits"], -1)[:, -1]
    assert interp.check(compiled(found), found.machine, inputs, {"O": last.astype(np.float64)}).ok


def test_with_bits_parts_come_into_the_pool_and_nowhere_else() -> None:
    rows = program(SMALL).instructions
    assert any(row.bind is not None for row in rows)
    assert {row.op for row in rows} & {"LDS", "STS", "LDGSTS"} == set()


def test_without_bits_no_weft_waits_for_another_one() -> None:
    rows = program(SMALL, LITERAL).instructions
    assert not [row for row in rows if row.bind is not None or row.op.startswith(("BAR", "SYNCS", "LDGSTS"))]


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_no_launch_of_decoding_runs_as_today(gpu: str, step: int) -> None:
    texts = {"batch": 16, "heads_kv": 4, "seqlen_kv": 4096}
    found = request("decode_attention", STEPS[step].machine(machine(gpu)), mode="fiber", texts=texts)
    launches = [(launch.asked.kernel, launch.asked.mode, launch.note) for launch in composites.questions(found)]
    assert launches == [("decode_split", "fiber", ""), ("decode_combine", "fiber", "")]


@pytest.mark.parametrize(("step", "texts", "text"), [
    (LITERAL, {"parts": 4}, "parts must be 1 to 3, the splits; got 4"),
    (LITERAL, {"groups": 5}, "groups must be 1 to 4 with 3 parts, as registers hold; got 5"),
    (ALL, {"stages": 9}, "stages must be 1 to"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(step: int, texts: dict[str, int], text: str) -> None:
    default = {"groups": 1, "parts": 3} if step == LITERAL else {"groups": 1, "stages": 1}
    with pytest.raises(UserError, match=text):
        compiled(asked(SMALL | default | texts, step=step))


def test_the_verifier_rejects_mutants() -> None:
    every = list(mutants(program(SMALL)))
    assert len(every) > EVERY
    assert [name for name, mutant in every[::EVERY] if not rejected(mutant, asked(SMALL).machine)] == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_mutants_are_rejected_or_reported() -> None:
    found = asked(MANY)
    fates = {name: fate(mutant, found) for name, mutant in list(mutants(program(MANY)))[::SLOW_EVERY]}
    survivors = [name for name, by in fates.items() if by not in ("verifier", "hazard", "run")]
    assert len(survivors) <= 0.05 * len(fates), survivors


@pytest.mark.slow
@pytest.mark.parametrize("step", [LITERAL, ALL])
def test_the_engines_agree_on_every_stall(step: int) -> None:
    ours, plain = (
        sim.simulate(program(MANY, step), asked(MANY, step=step).machine, mode="chip", engine=name, fast_forward=False)
        for name in ("compiled", "reference")
    )
    assert ours.cycles == plain.cycles
    assert np.array_equal(ours.stalls_pc, plain.stalls_pc)
