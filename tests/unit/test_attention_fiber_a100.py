"""Does the FIBER-native attention of A100 compute right numbers, and keep the tensor cores busy?"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest

from heddle import sim
from heddle.errors import UserError
from heddle.interp.check import CheckReport, check
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_fiber import OWN, SUBPARTITIONS
from heddle.kernels.attention.reference import reference
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.sm80_fiber_native import SM80_FIBER
from heddle.machine import Machine, machine
from heddle.passes import compile_program


def problem(**changes: Any) -> AttentionProblem:
    """Return a problem of one head; `changes` are its fields."""
    sizes = {"batch": 1, "heads_q": 1, "heads_kv": 1, "seqlen_q": 128, "seqlen_kv": 128, "head_dim": 128}
    return AttentionProblem(**{**sizes, "causal": False, "dtype": "fp16", **changes})


PLAIN = problem(seqlen_kv=192)
LONG = problem(seqlen_kv=512)
RAGGED = problem(heads_q=2, seqlen_q=70, seqlen_kv=100, head_dim=64, causal=True, dtype="bf16")
WIDE = problem(seqlen_q=64, head_dim=256)


@functools.cache
def one_sm() -> Machine:
    """Return an A100 with FIBER, of one SM."""
    return machine("a100+fiber").replace(sms=1)


@functools.cache
def compiled(wanted: AttentionProblem) -> WarpProgram:
    """Return the kernel for a problem, compiled."""
    config = SM80_FIBER.candidates(wanted, one_sm())[0]
    return compile_program(SM80_FIBER.build(wanted, config, one_sm(), {}), one_sm())


def checked(wanted: AttentionProblem) -> CheckReport:
    """Run with random numbers in the engine's order and compare with float64."""
    result = sim.simulate(compiled(wanted), one_sm(), mode="chip", log="all", fast_forward=False)
    arrays, expected = reference(wanted, 0)
    return check(
        compiled(wanted), one_sm(), {name: arrays[name] for name in "QKV"}, {"O": expected["O"]}, result=result
    )


@pytest.mark.parametrize(
    "wanted", [RAGGED, PLAIN, pytest.param(WIDE, marks=pytest.mark.slow)], ids=["ragged", "plain", "wide"]
)
def test_numbers_are_right_and_no_hazard_is_found(wanted: AttentionProblem) -> None:
    report = checked(wanted)
    assert report.ok, report.lines()


def test_scores_never_pass_through_shared_memory() -> None:
    used = {row.op for row in compiled(PLAIN).instructions}
    assert not used & {"STS", "STSM", "LDS", "BAR.SYNC", "SYNCS.ARRIVE"}


def test_first_operands_lie_in_the_own_subpartition_and_second_ones_in_all() -> None:
    products = [row for row in compiled(PLAIN).instructions if row.op == "HMMA"]
    assert {row.src[0].place for row in products} == {OWN}
    assert {row.src[1].place for row in products} == set(range(SUBPARTITIONS))


def test_products_next_to_each_other_read_from_different_subpartitions() -> None:
    products = [row for row in compiled(PLAIN).instructions if row.op == "HMMA"]
    pairs = list(itertools.pairwise(products))
    same = sum(one.src[1].place == other.src[1].place for one, other in pairs)
    assert same / len(pairs) < 0.1


def test_wefts_that_do_not_multiply_leave_issue_slots_to_those_that_do() -> None:
    program = compiled(PLAIN)
    first = {role.name: role.entry for role in program.roles}
    softmax = program.instructions[first["softmax0"] : first["softmax1"]]
    paced = [row for row in softmax if row.op != "DEPBAR.BIND"]
    assert all(row.control.stall >= 7 for row in paced)


def test_the_tensor_cores_are_busy() -> None:
    result = sim.simulate(compiled(LONG), one_sm(), mode="chip")
    assert result.tensor_busy_cycles / result.cycles > 0.6  # of one tile: with its beginning and its end


def test_fp8_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(UserError, match="takes fp16, bf16 and head sizes 64, 128, 256"):
        SM80_FIBER.candidates(problem(dtype="fp8_e4m3"), one_sm())
