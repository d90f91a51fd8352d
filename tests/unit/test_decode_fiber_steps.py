"""Decoding on machines with some of FIBER's features: is it right, and is what they lack not used?"""

from __future__ import annotations

from typing import Any

import pytest

from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_fiber import OWN
from heddle.machine import machine
from heddle.study import composites
from heddle.study.checks import check
from heddle.study.features import STEPS
from heddle.study.requests import Request, request
from heddle.study.runs import compiled
from native_mutants import fate, mutants, rejected

SMALL = {"batch": 1, "heads_q": 3, "heads_kv": 1, "seqlen_kv": 300, "num_splits": 2}
NARROW = {**SMALL, "heads_q": 17, "seqlen_kv": 257, "num_splits": 1, "head_dim": 64, "dtype": "bf16"}
LONG = {**SMALL, "seqlen_kv": 1000}
FEATURES = {step.name: step for step in STEPS}
EVERY = 60
SLOW_EVERY = {"+DP +FS": 15, "+DP literal": 2}
"""Of so many mutants one is tried."""


def asked(step: str, params: dict[str, Any], gpu: str = "a100") -> Request:
    """Ask for a launch on a GPU of two SMs with the features of a step."""
    return request("decode_split", FEATURES[step].machine(machine(gpu)).replace(sms=2), mode="fiber", texts=params)


def program(step: str) -> WarpProgram:
    """Return the warp program."""
    return compiled(asked(step, SMALL))


@pytest.mark.parametrize(
    ("step", "gpu", "params"),
    [
        ("+DP +FS", "a100", SMALL),
        ("+DP literal", "a100", SMALL),
        pytest.param("+DP +FS", "b200", NARROW, marks=pytest.mark.slow),
        pytest.param("+DP", "b200", NARROW, marks=pytest.mark.slow),
        pytest.param("+DP", "h100", {**LONG, "stages": 4}, marks=pytest.mark.slow),
    ],
)
def test_numbers_are_right(step: str, gpu: str, params: dict[str, Any]) -> None:
    row = check(asked(step, params, gpu))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_with_bits_nothing_is_read_in_another_subpartition() -> None:
    found = program("+DP +FS").instructions
    assert {operand.place for row in found for operand in row.src} <= {OWN, None}
    assert any(row.bind is not None for row in found)


def test_without_bits_wefts_share_no_register() -> None:
    found = program("+DP literal").instructions
    assert not [row for row in found if row.bind is not None]
    assert {"LDGSTS", "LDSM", "BAR.ARV"} <= {row.op for row in found}


def test_stages_are_bounded_by_shared_memory() -> None:
    with pytest.raises(UserError, match="stages must be 3 to 3, as shared memory holds; got 4"):
        compiled(asked("+DP literal", {**SMALL, "stages": 4}))


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
@pytest.mark.parametrize("step", [step.name for step in STEPS])
def test_decoding_runs_natively_with_the_features_of_every_step(step: str, gpu: str) -> None:
    base = machine(gpu)
    found = request("decode_attention", FEATURES[step].machine(base), mode="fiber", texts={"batch": 16, "heads_kv": 4})
    split = composites.questions(found)[0]
    assert (split.asked.kernel, split.asked.mode, split.note) == ("decode_split", "fiber", "")


def test_the_verifier_rejects_mutants_of_the_bits() -> None:
    of = asked("+DP +FS", SMALL)
    of_bits = [found for found in mutants(compiled(of)) if "BAR" not in found[0]]
    assert len(of_bits) > EVERY
    assert [name for name, mutant in of_bits[::EVERY] if not rejected(mutant, of.machine)] == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("step", "params"), [("+DP +FS", SMALL), ("+DP literal", LONG)])
def test_mutants_are_found(step: str, params: dict[str, Any]) -> None:
    of = asked(step, params)
    fates = {name: fate(mutant, of) for name, mutant in list(mutants(compiled(of)))[:: SLOW_EVERY[step]]}
    left = [name for name, found in fates.items() if found not in ("verifier", "run", "hazard")]
    assert len(left) <= 0.05 * len(fates), left
