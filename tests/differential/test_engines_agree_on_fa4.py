"""Do both engines agree on every count of FlashAttention 4, with and without fast-forward?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agreement import differences
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_text import parse_program, print_program
from heddle.ir.warp_verify import verify
from heddle.machine import Machine, machine
from heddle.pipeline import compile_kernel
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference

B200 = dataclasses.replace(machine("b200"), sms=2)
SMALL = {"batch": 1, "heads_q": 2, "seqlen_q": 300, "head_dim": 64, "dtype": "bf16"}
CASES: list[Any] = [
    {"causal": 1, "heads_q": 1},
    {"head_dim": 256, "seqlen_q": 160, "heads_q": 1},
    *(pytest.param(case, marks=pytest.mark.slow) for case in ({}, {"causal": 1}, {"head_dim": 256, "seqlen_q": 160})),
]


def compiled(case: dict[str, Any]) -> tuple[WarpProgram, Machine]:
    """A small problem on a small chip."""
    return compile_kernel("attention", B200, {**SMALL, **case}), B200


@pytest.mark.parametrize("case", CASES, ids=str)
def test_engines_agree(case: dict[str, Any]) -> None:
    program, small = compiled(case)
    options = {"mode": "chip", "l2_state": "cold"}
    expected = simulate_reference(program, small, **options)
    assert not differences(expected, simulate(program, small, fast_forward=False, **options))


def test_fast_forward_changes_nothing() -> None:
    program, small = compiled({"seqlen_q": 256, "seqlen_kv": 4096})
    runs = [simulate(program, small, mode="chip", fast_forward=fast) for fast in (False, True)]
    assert runs[0].cycles == runs[1].cycles
    assert (runs[0].stalls == runs[1].stalls).all()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_program_passes_the_verifier_and_survives_its_text(case: dict[str, Any]) -> None:
    program, small = compiled(case)
    verify(program, small)
    assert parse_program(print_program(program)) == program
