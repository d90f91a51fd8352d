"""Is the attention of A100 right on machines with some of FIBER's features, and is what they lack not used?"""

from __future__ import annotations

from typing import Any

import pytest

from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_fiber import OWN
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.study.checks import check
from heddle.study.features import STEPS
from heddle.study.requests import Request, request
from heddle.study.runs import compiled
from native_mutants import fate, mutants, rejected

PLAIN = {"batch": 1, "heads_q": 1, "seqlen_q": 128, "seqlen_kv": 128}
RAGGED = {**PLAIN, "heads_q": 2, "seqlen_q": 70, "seqlen_kv": 100, "head_dim": 64, "causal": 1, "dtype": "bf16"}
LONG = {**PLAIN, "seqlen_q": 100, "seqlen_kv": 180, "head_dim": 64, "tile_n": 32, "turns": 1}
"""Six blocks of keys, and little code."""
WIDE = {**PLAIN, "seqlen_q": 64, "head_dim": 256}
QUICK = 120
"""In the quick test every so many of the mutants that the verifier has to reject."""
SLOW_EVERY = 4
ACCEPTED = 0.05
FEATURES = {step.name: step for step in STEPS}


def asked(step: str, params: dict[str, Any]) -> Request:
    """Ask for a problem on one SM with the features of a step."""
    return request("attention", FEATURES[step].machine(machine("a100")).replace(sms=1), mode="fiber", texts=params)


def program(step: str, params: dict[str, Any]) -> WarpProgram:
    """Return the warp program."""
    return compiled(asked(step, params))


@pytest.mark.parametrize(
    "params",
    [RAGGED, pytest.param(PLAIN, marks=pytest.mark.slow), pytest.param(WIDE, marks=pytest.mark.slow)],
    ids=["ragged", "plain", "wide"],
)
def test_numbers_are_right_with_copies_in_each_subpartition(params: dict[str, Any]) -> None:
    row = check(asked("+DP +FS", params))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.slow
def test_copies_are_read_in_the_own_subpartition_and_nothing_starts_together() -> None:
    products = [row for row in program("+DP +FS", PLAIN).instructions if row.op == "WMMA"]
    assert {operand.place for row in products for operand in row.src[:2]} == {OWN}
    assert not any(row.group for row in products)


@pytest.mark.parametrize(
    "params",
    [
        LONG,
        pytest.param(RAGGED, marks=pytest.mark.slow),
        pytest.param({**PLAIN, "seqlen_q": 256, "seqlen_kv": 256, "causal": 1}, marks=pytest.mark.slow),
        pytest.param({**WIDE, "turns": 1}, marks=pytest.mark.slow),
    ],
    ids=["long", "ragged", "causal", "wide"],
)
def test_numbers_are_right_without_bits(params: dict[str, Any]) -> None:
    row = check(asked("+DP literal", params))
    assert (row["passed"], row["hazards"]) == (True, [])


def test_without_bits_wefts_share_no_register_and_multiply_by_mma_sync() -> None:
    found = find_kernel("attention").build(asked("+DP", LONG).machine, asked("+DP", LONG).params, mode="fiber")
    assert not found.pool
    assert {row.op for row in program("+DP", LONG).instructions} & {"HMMA", "WMMA", "DEPBAR.BIND"} == {"HMMA"}


def test_a_kernel_without_bits_says_what_its_tile_may_be() -> None:
    with pytest.raises(UserError, match="multiples of 16 keys; got 2, 32, 2 and 24"):
        program("+DP literal", {**LONG, "tile_n": 24})


def test_two_stages_are_too_few_where_rows_of_others_are_loaded() -> None:
    with pytest.raises(UserError, match="stages must be 3 to"):
        program("+DP +FS", {**PLAIN, "stages": 2})


@pytest.mark.slow
def test_the_verifier_rejects_mutants_of_the_bits() -> None:
    of = asked("+DP +FS", RAGGED)
    of_bits = [found for found in mutants(compiled(of)) if "BAR" not in found[0] and "DEPBAR)" not in found[0]]
    assert len(of_bits) > QUICK
    assert [name for name, mutant in of_bits[::QUICK] if not rejected(mutant, of.machine)] == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("step", "params"), [("+DP +FS", RAGGED), ("+DP literal", LONG)], ids=["copies", "roles"])
def test_mutants_are_found(step: str, params: dict[str, Any]) -> None:
    of = asked(step, params)
    fates = {name: fate(mutant, of) for name, mutant in list(mutants(compiled(of)))[::SLOW_EVERY]}
    left = [name for name, found in fates.items() if found not in ("verifier", "run", "hazard")]
    assert len(left) <= ACCEPTED * len(fates), left
