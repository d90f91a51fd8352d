"""Does the FIBER-native attention of A100 compute right numbers, and keep the tensor cores busy?"""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

import pytest

from heddle import sim
from heddle.errors import UserError
from heddle.interp.check import CheckReport, check
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_fiber import OWN, SUBPARTITIONS
from heddle.kernels.attention.forward.sm80_fiber_native import SM80_FIBER
from heddle.kernels.attention.reference import reference
from heddle.kernels.attention.shape import AttentionProblem
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
MMA_SYNC = {"weft_level": 0, "pace": 7}


@functools.cache
def one_sm() -> Machine:
    """Return an A100 with FIBER, of one SM."""
    return machine("a100+fiber").replace(sms=1)


@functools.cache
def compiled(wanted: AttentionProblem, **changes: int) -> WarpProgram:
    """Return the kernel for a problem, compiled; `changes` are fields of its configuration."""
    config = replace(SM80_FIBER.candidates(wanted, one_sm())[0], **changes)
    return compile_program(SM80_FIBER.build(wanted, config, one_sm(), {}), one_sm())


def checked(wanted: AttentionProblem, **changes: int) -> CheckReport:
    """Run with random numbers in the engine's order and compare with float64."""
    program = compiled(wanted, **changes)
    result = sim.simulate(program, one_sm(), mode="chip", log="all", fast_forward=False)
    arrays, expected = reference(wanted, 0)
    return check(program, one_sm(), {name: arrays[name] for name in "QKV"}, {"O": expected["O"]}, result=result)


@pytest.mark.parametrize(
    "wanted", [RAGGED, PLAIN, pytest.param(WIDE, marks=pytest.mark.slow)], ids=["ragged", "plain", "wide"]
)
def test_numbers_are_right_and_no_hazard_is_found(wanted: AttentionProblem) -> None:
    report = checked(wanted)
    assert report.ok, report.lines()


@pytest.mark.parametrize("wanted", [pytest.param(RAGGED, marks=pytest.mark.slow), PLAIN], ids=["ragged", "plain"])
def test_numbers_of_mma_sync_are_right_and_no_hazard_is_found(wanted: AttentionProblem) -> None:
    report = checked(wanted, **MMA_SYNC)
    assert report.ok, report.lines()


def test_scores_never_pass_through_shared_memory() -> None:
    used = {row.op for row in compiled(PLAIN).instructions}
    assert not used & {"STS", "STSM", "LDS", "BAR.SYNC", "SYNCS.ARRIVE"}


@pytest.mark.parametrize(("op", "changes"), [("WMMA", {}), ("HMMA", MMA_SYNC)])
def test_first_operands_lie_in_the_own_subpartition_and_second_ones_in_all(op: str, changes: dict[str, int]) -> None:
    products = [row for row in compiled(PLAIN, **changes).instructions if row.op in ("WMMA", "HMMA")]
    assert {row.op for row in products} == {op}
    assert {row.src[0].place for row in products} == {OWN}
    assert {row.src[1].place for row in products} == set(range(SUBPARTITIONS))


def test_weft_level_products_take_all_columns_of_a_step_in_lockstep() -> None:
    products = [row for row in compiled(PLAIN).instructions if row.op == "WMMA"]
    assert all(row.group for row in products)
    assert {(row.shape, row.src[1].count) for row in products} == {((16, 64, 16), 16), ((16, 128, 16), 32)}


def test_mma_syncs_next_to_each_other_read_from_different_subpartitions() -> None:
    products = [row for row in compiled(PLAIN, **MMA_SYNC).instructions if row.op == "HMMA"]
    pairs = list(itertools.pairwise(products))
    same = sum(one.src[1].place == other.src[1].place for one, other in pairs)
    assert same / len(pairs) < 0.1


def test_wefts_that_do_not_multiply_leave_issue_slots_to_mma_sync() -> None:
    program = compiled(PLAIN, **MMA_SYNC)
    first = {role.name: role.entry for role in program.roles}
    softmax = program.instructions[first["softmax0"] : first["softmax1"]]
    paced = [row for row in softmax if row.op != "DEPBAR.BIND"]
    assert all(row.control.stall >= 7 for row in paced)


def busy(**changes: int) -> float:
    """Return the tensor use of one tile of 512 keys, its beginning and its end included."""
    result = sim.simulate(compiled(LONG, **changes), one_sm(), mode="chip")
    return result.tensor_busy_cycles / result.cycles


def test_the_tensor_cores_are_busy() -> None:
    assert busy() > 0.7


def test_mma_sync_is_denied_its_ports() -> None:
    assert busy(**MMA_SYNC) < busy() - 0.1


def test_another_kind_of_product_is_refused() -> None:
    config = replace(SM80_FIBER.candidates(PLAIN, one_sm())[0], weft_level=2)
    with pytest.raises(UserError, match="weft_level must be 0 or 1"):
        SM80_FIBER.build(PLAIN, config, one_sm(), {})


def test_fp8_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(UserError, match="takes fp16, bf16 and head sizes 64, 128, 256"):
        SM80_FIBER.candidates(problem(dtype="fp8_e4m3"), one_sm())
