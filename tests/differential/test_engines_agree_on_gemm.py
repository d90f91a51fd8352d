"""Do both engines agree on every count of the GEMM kernels, on a small chip, and does each pass the verifier?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agreement import differences
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_text import parse_program, print_program
from heddle.ir.warp_verify import verify
from heddle.kernels.gemm.shape import GemmConfig
from heddle.kernels.registry import find_kernel
from heddle.machine import Machine, machine
from heddle.pipeline import compile_kernel
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference

SMS = 2  # enough for a cluster, few enough for the slow engine
SMALL = {"m": 256, "n": 264, "k": 320}  # more than one tile, none of them full
CASES: list[
    Any
] = [  # one of each way that a kernel runs; tile, cluster and split are the kernel's own choice among those
    ("a100", "multistage", 1, 1),
    ("h100", "cooperative", 1, 1),
    ("h100", "cooperative", 2, 1),
    ("h100", "pingpong", 1, 1),
    ("h100", "pingpong", 2, 1),
    ("b200", "tcgen05", 1, 1),
    ("b200", "tcgen05", 2, 1),
    pytest.param("a100", "multistage", 1, 2, marks=pytest.mark.slow),
    ("h100", "cooperative", 1, 2),
]


def gemm(gpu: str, schedule: str, cluster: int, split_k: int, k: int = SMALL["k"]) -> tuple[WarpProgram, Machine]:
    """Compile the small GEMM as the first candidate that runs in this way, split along k if asked."""
    small = dataclasses.replace(machine(gpu), sms=SMS)
    kernel = find_kernel("gemm")
    params = kernel.check(SMALL | {"k": k})
    fitting = [c for c in kernel.candidates(small, params) if (c.schedule, c.cluster) == (schedule, cluster)]
    if not fitting:
        pytest.skip(f"{gpu} has no {schedule} candidate with clusters of {cluster} for {SMALL}")
    config: GemmConfig = dataclasses.replace(fitting[0], split_k=split_k)
    return compile_kernel("gemm", small, params, config), small


@pytest.mark.parametrize("k", [256, pytest.param(SMALL["k"], marks=pytest.mark.slow)])
@pytest.mark.parametrize(("gpu", "schedule", "cluster", "split_k"), CASES)
def test_engines_agree_on_gemm(gpu: str, schedule: str, cluster: int, split_k: int, k: int) -> None:
    program, small = gemm(gpu, schedule, cluster, split_k, k)
    options = {"mode": "chip", "l2_state": "cold"}
    expected = simulate_reference(program, small, **options)
    assert not differences(expected, simulate(program, small, fast_forward=False, **options))


@pytest.mark.parametrize(("gpu", "schedule", "cluster", "split_k"), CASES)
def test_gemm_passes_the_verifier_and_survives_its_text(gpu: str, schedule: str, cluster: int, split_k: int) -> None:
    program, small = gemm(gpu, schedule, cluster, split_k)
    verify(program, small)
    assert parse_program(print_program(program)) == program
