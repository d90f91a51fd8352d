"""Is the GEMM of wefts without full and empty bits right, by wgmma, with sums that pass as its name says?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiber_kernels import one_sm
from heddle import sim
from heddle.ir.warp import WarpProgram
from heddle.kernels.gemm.sm90_fiber_phased import gemm_sm90_fiber_phased
from heddle.kernels.gemm.sm90_fiber_shape import Exchange, FiberGemm
from heddle.machine import Machine
from heddle.passes import compile_program
from heddle.study.checks import check
from heddle.study.features import STEPS
from heddle.study.requests import request

EXCHANGES: dict[Exchange, dict[str, Any]] = {
    "shared": dict(STEPS[0].changes),
    "barriers": dict(STEPS[1].changes),
}
GATED = {"m": 72, "n": 144, "k": 136, "epilogue": "silu_mul", "tile_n": 64, "groups": 1, "cluster": 1}
ROTATED = {
    **{"m": 200, "n": 192, "k": 200, "epilogue": "rope", "head_dim": 64, "heads_q": 1, "heads_kv": 1},
    **{"tile_n": 64, "cluster": 2},
}
TWO_PARTS = {"m": 70, "n": 150, "k": 192, "tile_n": 160, "dtype": "bf16", "cluster": 1}
"""C by plain stores, as its rows are not aligned."""
CASES = [
    pytest.param(GATED, id="gate, one group"),
    pytest.param(ROTATED, id="rope, pairs of CTAs", marks=pytest.mark.slow),
    pytest.param(TWO_PARTS, id="two parts", marks=pytest.mark.slow),
]


def without_bits(exchange: Exchange) -> Machine:
    """Return one SM on which the kernel of this exchange runs."""
    return one_sm().replace(**EXCHANGES[exchange])


def compiled(exchange: Exchange) -> WarpProgram:
    """Return a small product of two groups."""
    problem = FiberGemm(m=128, n=64, k=192, tile_n=64, stages=2, exchange=exchange)
    return compile_program(gemm_sm90_fiber_phased.build("sm_90", problem), without_bits(exchange))


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("texts", CASES)
def test_numbers_are_right_and_no_hazard_is_found(exchange: Exchange, texts: dict[str, Any]) -> None:
    target = one_sm().replace(sms=2, **EXCHANGES[exchange])
    row = check(request("gemm", target, mode="fiber", texts=texts))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_the_engines_agree_on_every_stall(exchange: Exchange) -> None:
    program, target = compiled(exchange), without_bits(exchange)
    ours, plain = (sim.simulate(program, target, mode="chip", engine=name, fast_forward=False)
                   for name in ("compiled", "reference"))  # fmt: skip
    assert ours.cycles == plain.cycles
    assert np.array_equal(ours.stalls_pc, plain.stalls_pc)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_products_are_those_of_warp_groups_and_no_bit_is_set(exchange: Exchange) -> None:
    rows = compiled(exchange).instructions
    assert {row.form for row in rows if row.op == "HGMMA"} == {"ss"}
    assert not [row for row in rows if row.op == "WMMA" or row.bind is not None]


def test_only_the_literal_form_sends_sums_through_shared_memory() -> None:
    loads = {exchange: sum(row.op == "LDS" for row in compiled(exchange).instructions) for exchange in EXCHANGES}
    assert loads["barriers"] == 0 < loads["shared"]
