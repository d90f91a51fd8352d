"""Are GEMM of B200 and W4A16 of H100 and B200 right in wefts without full and empty bits, ordered by mbarriers?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from heddle import sim
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import WarpProgram
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.study.checks import check
from heddle.study.features import STEPS
from heddle.study.requests import Request, request
from heddle.study.runs import compiled
from native_mutants import fate
from pair_mutants import mutants

ENOUGH = 0.95
"""Of the mutants, what must be found."""
PRODUCT = {"m": 300, "n": 128, "k": 192, "tile_n": 64, "cluster": 2, "stages": 2, "split_k": 1}
GATED = {"m": 130, "n": 256, "k": 136, "tile_n": 64, "cluster": 1, "stages": 3, "split_k": 1, "epilogue": "silu_mul"}
SLICES = {"m": 100, "n": 128, "k": 512, "tile_n": 128, "cluster": 1, "stages": 2, "split_k": 2, "dtype": "bf16"}
AWQ = {"m": 130, "n": 256, "k": 256, "tile_m": 64, "stages": 2}
BOOKS = {**AWQ, "scheme": "aqlm_2x8"}
"""One CTA of a pair has several tiles on one SM or two."""


def asked(kernel: str, gpu: str, step: int, sizes: dict[str, Any]) -> Request:
    """Ask for a kernel on two SMs with the features of a step, no more."""
    return request(kernel, STEPS[step].machine(machine(gpu)).replace(sms=2), mode="fiber", texts=sizes)


CASES = [
    pytest.param("gemm", "b200", 0, PRODUCT, id="pair"),
    pytest.param("gemm", "b200", 1, GATED, id="gate", marks=pytest.mark.slow),
    pytest.param("gemm", "b200", 0, SLICES, id="slices of k", marks=pytest.mark.slow),
    pytest.param("w4a16", "h100", 0, {**AWQ, "tile_n": 128}, id="awq, wgmma"),
    pytest.param("w4a16", "h100", 1, {**BOOKS, "tile_n": 64}, id="aqlm, wgmma", marks=pytest.mark.slow),
    pytest.param("w4a16", "b200", 1, {**AWQ, "warps": 4}, id="awq, tcgen05"),
    pytest.param("w4a16", "b200", 0, {**BOOKS, "warps": 8}, id="aqlm, tcgen05", marks=pytest.mark.slow),
]
MUTATED = [
    pytest.param("gemm", "b200", {**PRODUCT, "m": 512}, id="gemm"),
    pytest.param("w4a16", "h100", {**AWQ, "tile_n": 128}, id="w4a16, wgmma", marks=pytest.mark.slow),
    pytest.param("w4a16", "b200", {**AWQ, "warps": 4}, id="w4a16, tcgen05", marks=pytest.mark.slow),
]


def program(kernel: str, gpu: str, sizes: dict[str, Any]) -> tuple[WarpProgram, Request]:
    """Return the program and its request, without registers shared at all."""
    found = asked(kernel, gpu, 0, sizes)
    return compiled(found), found


@pytest.mark.parametrize(("kernel", "gpu", "step", "sizes"), CASES)
def test_numbers_are_right_and_no_hazard_is_found(kernel: str, gpu: str, step: int, sizes: dict[str, Any]) -> None:
    row = check(asked(kernel, gpu, step, sizes))
    assert (row["passed"], row["hazards"]) == (True, [])


@pytest.mark.parametrize(("kernel", "gpu"), [("gemm", "b200"), ("w4a16", "h100"), ("w4a16", "b200")])
def test_every_step_has_a_kernel(kernel: str, gpu: str) -> None:
    for step in STEPS:
        at = step.machine(machine(gpu))
        assert not find_kernel(kernel).native_on(at).lacks(at)


@pytest.mark.parametrize(("kernel", "gpu", "sizes"), MUTATED)
def test_the_engines_agree_and_no_bit_is_set(kernel: str, gpu: str, sizes: dict[str, Any]) -> None:
    made, found = program(kernel, gpu, sizes)
    ours, plain = (
        sim.simulate(made, found.machine, mode="chip", engine=name, fast_forward=False)
        for name in ("compiled", "reference")
    )
    assert ours.cycles == plain.cycles
    assert np.array_equal(ours.stalls_pc, plain.stalls_pc)
    assert not [row for row in made.instructions if row.bind is not None]


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "gpu", "sizes"), MUTATED)
def test_nearly_every_mutant_is_found(kernel: str, gpu: str, sizes: dict[str, Any]) -> None:
    made, found = program(kernel, gpu, sizes)
    every = list(mutants(made))
    survivors = [name for name, mutant in every if not of_the_pairs_lives(made, mutant) and not fate(mutant, found)]
    assert len(survivors) <= (1 - ENOUGH) * len(every), survivors


def of_the_pairs_lives(made: WarpProgram, mutant: WarpProgram) -> bool:
    """Whether what a mutant lacks is the meeting before the first copy, or a wait of a role behind its last item.

    They keep a CTA of a pair from signals before it has begun and after it has ended. No data need them, and a run here
    has both CTAs from the first cycle to the last.
    """
    rows = made.instructions
    pc = next(pc for pc, (row, left) in enumerate(zip(rows, mutant.instructions, strict=True)) if row != left)
    end = min((role.entry for role in made.roles if role.entry > pc), default=len(rows))
    last_item = not any(OPCODES[row.op].unit is Unit.NEXT_ITEM for row in rows[pc:end])
    unit = OPCODES[rows[pc].op].unit
    return made.cluster_size > 1 and (unit is Unit.CLUSTER_SYNC or (unit is Unit.MBARRIER_WAIT and last_item))
