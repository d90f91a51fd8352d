"""Do products read operands where a placement puts them, with right numbers, and is the better one found?"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from agreement import differences
from fiber_a100 import one_sm, run
from heddle.errors import UserError
from heddle.interp.check import check
from heddle.ir.tile_text import parse_program, print_program
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_fiber import WINDOW
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.gemm.sm80_fiber import FiberGemm80
from heddle.kernels.gemm.sm80_fiber_placed import OWN_ROWS, PAPER, Placement, gemm_sm80_fiber_placed
from heddle.lang import Builder
from heddle.passes import compile_program
from heddle.study import placement as study

SMALL = FiberGemm80(m=64, n=64, k=96, tile_m=64, tile_n=64, stages=2)
MIXED = Placement(a=(0, 1, 1, 3), b=(1, 2), staggered=True)


@functools.cache
def compiled(where: Placement) -> WarpProgram:
    """Return the small product, compiled."""
    return compile_program(gemm_sm80_fiber_placed.build("sm_80", SMALL, where), one_sm())


@pytest.mark.parametrize("where", [OWN_ROWS, PAPER, MIXED], ids=Placement.label)
def test_numbers_are_right_and_engines_agree(where: Placement) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((SMALL.m, SMALL.k)), rng.standard_normal((SMALL.n, SMALL.k))
    ours = run(compiled(where))
    report = check(compiled(where), one_sm(), {"A": a, "B": b}, {"C": a @ b.T}, result=ours)
    assert report.ok, report.lines()
    assert not differences(run(compiled(where), "reference"), ours)


def homes(program: WarpProgram, slot: int) -> set[int | None]:
    """Return the subpartitions that products name for an operand."""
    return {row.src[slot].place for row in program.instructions if row.op == "HMMA"}


@pytest.mark.parametrize("where", [PAPER, MIXED], ids=Placement.label)
def test_operands_lie_where_the_placement_says(where: Placement) -> None:
    assert homes(compiled(where), 0) == set(where.a)
    assert homes(compiled(where), 1) == set(where.b)


def test_the_tile_program_survives_its_text() -> None:
    tiles = gemm_sm80_fiber_placed.build("sm_80", SMALL, MIXED)
    assert parse_program(print_program(tiles)) == tiles


def test_roles_in_different_subpartitions_have_the_same_registers() -> None:
    large = FiberGemm80(m=128, n=128, k=64, tile_m=128, tile_n=128, stages=2)
    program = compile_program(gemm_sm80_fiber_placed.build("sm_80", large, PAPER), one_sm())
    assert program.fiber is not None
    assert program.fiber.registers < WINDOW  # four wefts that multiply have 128 sums each


def test_the_papers_rule_has_fewer_conflicts() -> None:
    problem = FiberGemm80(m=128, n=128, k=128, tile_m=128, tile_n=128, stages=3)
    paper, own = (study.measure_gemm(problem, where, one_sm()) for where in (PAPER, OWN_ROWS))
    assert paper.conflicts < 0.8 * own.conflicts


def test_the_search_changes_one_thing_at_a_time_until_nothing_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(problem: object, where: Placement, machine: object) -> study.Measured:
        cycles = 100 - 10 * (where.b == (2, 3)) - 5 * where.staggered - 7 * (where.a == (0, 0, 1, 1))
        return study.Measured(where.label(), cycles, 0.0, 0.0)

    monkeypatch.setattr(study, "measure_gemm", measure)
    seen: list[study.Measured] = []
    best = study.search_gemm(SMALL, one_sm(), note=seen.append)
    assert best == Placement(a=(0, 0, 1, 1), b=(2, 3), staggered=True)
    assert len({found.label for found in seen}) == len(seen)


def test_attention_takes_keys_and_values_from_two_subpartitions() -> None:
    problem = AttentionProblem(
        batch=1, heads_q=1, heads_kv=1, seqlen_q=128, seqlen_kv=128, head_dim=64, causal=False, dtype="fp16"
    )
    found = study.measure_attention(problem, (2, 3), one_sm())
    assert found.label == "K and V in 2 3"
    assert found.conflicts > 0


def test_head_size_128_does_not_fit_two_subpartitions() -> None:
    problem = AttentionProblem(
        batch=1, heads_q=1, heads_kv=1, seqlen_q=128, seqlen_kv=128, head_dim=128, causal=False, dtype="fp16"
    )
    with pytest.raises(UserError, match="needs 32 registers of each subpartition in window 0"):
        study.measure_attention(problem, (2, 3), one_sm())


Declare = Callable[[Builder], object]


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda k: k.pool("s", (64, 16), "fp16", wefts=(2, 1)), "divided among 2 x 1 wefts"),
        (lambda k: k.pool("s", (64, 16), "fp16", read_by="all", wefts=(3, 1)), "divided among 3 x 1 wefts"),
        (lambda k: k.pool("s", (64, 16), "fp16", read_by="all", wefts=(2, 1))[0].quarter(0), "not divided among four"),
        (lambda k: gemm_sm80_fiber_placed._function(k, SMALL, Placement(a=(0, 1, 2, 3), b=(0, 2))), "neighbouring"),
        (lambda k: gemm_sm80_fiber_placed._function(k, SMALL, Placement(a=(1, 0, 2, 3), b=(0,))), "ascending"),
    ],
)
def test_what_cannot_be_placed_is_an_error(declare: Declare, text: str) -> None:
    with pytest.raises(UserError, match=text):
        declare(Builder("sample", "sm_80"))
