"""Is attention of B200 without full and empty bits right, on the machines that lack them?"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

from heddle import sim
from heddle.errors import UserError
from heddle.interp.check import CheckReport, check
from heddle.ir.warp import WarpProgram
from heddle.kernels.attention.forward.sm100_fiber_phased import Exchange, build, candidates
from heddle.kernels.attention.reference import reference
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine import Machine
from heddle.passes import compile_program
from heddle.sim.result import SimResult
from native_b200 import ATTENTION, CAUSAL, WIDE, one_sm

LACKS: dict[Exchange, dict[str, Any]] = {
    "barriers": {"fine_scheduling": False, "sharing_scope": "subpartition"},
    "shared": {"fine_scheduling": False, "register_sharing": False},
}
"""What the machine lacks for which a way of row factors is made."""
ONE_TILE = dataclasses.replace(ATTENTION, seqlen_q=128)
CASES: dict[str, tuple[AttentionProblem, Exchange]] = {
    "factors in registers": (ATTENTION, "barriers"),
    "factors in shared memory": (ONE_TILE, "shared"),
}
SLOW: dict[str, tuple[AttentionProblem, Exchange]] = {
    "causal, packed heads": (CAUSAL, "barriers"),
    "wide head": (WIDE, "barriers"),
}


@functools.cache
def lacking(exchange: Exchange) -> Machine:
    """Return one SM of a B200 with the features that the kernel needs, no more."""
    return one_sm().replace(**LACKS[exchange])


@functools.cache
def compiled(problem: AttentionProblem, exchange: Exchange) -> WarpProgram:
    """Return the kernel, compiled."""
    at = lacking(exchange)
    return compile_program(build(problem, candidates(problem, at, exchange)[0], at, {}), at)


def run(problem: AttentionProblem, exchange: Exchange, engine: str = "compiled") -> SimResult:
    """Run with the log of every cycle."""
    at = lacking(exchange)
    return sim.simulate(compiled(problem, exchange), at, mode="chip", engine=engine, log="all", fast_forward=False)


def checked(problem: AttentionProblem, exchange: Exchange) -> CheckReport:
    """Run with random numbers and compare with float64."""
    program, (inputs, outputs) = compiled(problem, exchange), reference(problem, 1)
    names = {tensor.name for tensor in program.tensors}
    given, expected = ({name: group[name] for name in group if name in names} for group in (inputs, outputs))
    return check(program, lacking(exchange), given, expected, result=run(problem, exchange))


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_right_and_no_hazard_is_found(name: str) -> None:
    report = checked(*CASES[name])
    assert report.ok, report.lines()


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_numbers_are_right(name: str) -> None:
    report = checked(*SLOW[name])
    assert report.ok, report.lines()


@pytest.mark.slow
def test_the_engines_agree() -> None:
    ours, plain = run(ONE_TILE, "barriers"), run(ONE_TILE, "barriers", "reference")
    assert ours.cycles == plain.cycles
    assert np.array_equal(ours.stalls_pc, plain.stalls_pc)


def test_products_are_those_of_128_rows() -> None:
    products = [row for row in compiled(ONE_TILE, "barriers").instructions if row.op in ("UTCHMMA", "WMMA.TM")]
    assert {(row.op, row.shape[0]) for row in products if row.shape} == {("UTCHMMA", 128)}


def test_row_factors_leave_shared_memory_where_registers_are_shared() -> None:
    pooled, shared = compiled(ONE_TILE, "barriers"), compiled(ONE_TILE, "shared")
    spaces = [{object.space for object in found.objects if "factor" in object.name} for found in (pooled, shared)]
    assert "shared" not in spaces[0]
    assert "shared" in spaces[1]


def test_another_tile_is_refused() -> None:
    at = lacking("shared")
    config = dataclasses.replace(candidates(ONE_TILE, at, "shared")[0], tile_n=64)
    with pytest.raises(UserError, match="works on 2 tiles of 128 rows and blocks of 128 keys"):
        build(ONE_TILE, config, at, {})
