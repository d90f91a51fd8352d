"""Are GEMM of B200 and W4A16 of H100 and B200 right in wefts without full and empty bits, ordered by mbarriers?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from heddle import sim
from heddle.ir.warp import WarpProgram
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.study.checks import check
from heddle.study.features import STEPS
from heddle.study.requests import Request, request
from heddle.study.runs import compiled
from native_mutants import fate
from pair_mutants import mutants

PRODUCT: dict[str, Any] = {"m": 300, "n": 128, "k": 192, "tile_n": 64, "cluster": 2, "stages": 2, "split_k": 1}
GATED = {"m": 130, "n": 256, "k": 136, "tile_n": 64, "cluster": 1, "stages": 3, "split_k": 1, "epilogue": "silu_mul"}
SLICES = {"m": 100, "n": 128, "k": 512, "tile_n": 128, "cluster": 1, "stages": 2, "split_k": 2, "dtype": "bf16"}
AWQ: dict[str, Any] = {"m": 130, "n": 256, "k": 256, "tile_m": 64, "stages": 2}
BOOKS = {**AWQ, "scheme": "aqlm_2x8"}
"""One CTA of a pair has several tiles on one SM or two."""
PLACES = 4
"""Of weights in tensor memory, on B200."""


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
def test_every_mutant_that_is_not_implied_is_found(kernel: str, gpu: str, sizes: dict[str, Any]) -> None:
    made, found = program(kernel, gpu, sizes)
    every = list(mutants(made))
    assert not fate(made, found)
    survivors = Counter(missing for missing, mutant in every if not fate(mutant, found))
    assert survivors == Counter(IMPLIED[kernel, gpu])


@pytest.mark.parametrize(("kernel", "gpu", "sizes"), MUTATED)
def test_a_cta_that_leaves_before_the_other_one_is_done_is_found(kernel: str, gpu: str, sizes: dict[str, Any]) -> None:
    """All waits after the last item of the role of `LEAVES`, one by one: the last one is needed."""
    made, found = program(kernel, gpu, sizes)
    *_, (_, mutant) = (each for each in mutants(made) if each[0] == LEAVES[kernel, gpu])
    assert fate(mutant, found) == "hazard"


LEAVES = {
    ("gemm", "b200"): ("mma", "SYNCS.TRYWAIT", "acc_empty"),
    ("w4a16", "h100"): ("copy", "SYNCS.TRYWAIT", "empty"),
    ("w4a16", "b200"): ("multiply", "SYNCS.TRYWAIT", "acc_empty"),
}
"""Role, instruction and barrier of what keeps a CTA until the other one has signalled it for the last time."""
IMPLIED = {
    # Of each ring all places are waited for before the end. Who gives back the last place has given back the others.
    # The places of `empty` and `w_empty` are given back by commits, and all warps that store have waited for the last
    # commit of the same warp, that of `acc_full`. Arrivals of commits are in order in the engine; PTX does not promise
    # that, so the kernels wait for each.
    ("gemm", "b200"): [
        *[("load", "SYNCS.TRYWAIT", "empty")] * PRODUCT["stages"],
        ("mma", "SYNCS.TRYWAIT", "acc_empty"),
    ],
    ("w4a16", "h100"): [("copy", "SYNCS.TRYWAIT", "empty")] * (AWQ["stages"] - 1),
    ("w4a16", "b200"): [
        *[("load", "SYNCS.TRYWAIT", "empty")] * AWQ["stages"],
        ("multiply", "SYNCS.TRYWAIT", "acc_empty"),
        *[("make_0", "SYNCS.TRYWAIT", "w_empty")] * PLACES,
    ],
}
"""Role, instruction and barrier of the mutants that are right, by kernel and GPU."""
