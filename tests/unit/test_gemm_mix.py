"""Do the main loops of GEMM have the instructions of compiled ones?

Counts of kernels of the same tile that were compiled with CUDA 13.0: one with mma.sync (128 x 128 x 32, four warps, for
sm_80), one with wgmma (128 x 128 x 64, two consumer groups, for sm_90a) and one with tcgen05 (128 x 128 x 64, for
sm_100a), and Triton's for sm_80 (128 x 128 x 64, four warps). Addresses and descriptors are not compared: the
hand-written kernels compute them anew for each copy and product, Triton's and CUTLASS's advance them.
"""

from __future__ import annotations

from collections import Counter

import pytest

from heddle.ir.warp import Instruction
from heddle.kernels.registry import KERNELS
from heddle.machine import machine
from heddle.pipeline import compile_kernel
from heddle.sim.launch_work import role_code

PARAMS = {"m": 1024, "n": 1024, "k": 1024, "dtype": "fp16"}
TRITON = 275
"""Instructions of Triton's loop for sm_80: 64 of k, two of our blocks."""
MARGIN = 0.15


def main_loop(gpu: str, tile: str, role: str) -> list[Instruction]:
    """Return the first loop of a role, that over blocks of k, of the first configuration of a tile."""
    target = machine(gpu)
    config = next(c for c in KERNELS["gemm"].candidates(target, PARAMS) if c.label().startswith(tile))
    program = compile_kernel("gemm", target, PARAMS, config)
    [found] = [r for r in program.roles if r.name == role]
    code = role_code(program, found)
    last = next(pc for pc in range(*code) if program.instructions[pc].op == "LOOP")
    first = program.instructions[last].target
    assert first is not None
    return list(program.instructions[first : last + 1])


CASES = [
    ("a100", "multistage 128x128x32", "worker", {"HMMA": 64, "LDSM": 16, "LDGSTS": 8, "BAR.SYNC": 1, "DEPBAR": 1}),
    ("h100", "pingpong 64x128x64", "consumer0",
     {"HGMMA": 4, "WARPGROUP.ARRIVE": 1, "WARPGROUP.DEPBAR": 1, "SYNCS.TRYWAIT": 1, "SYNCS.ARRIVE": 1}),
    ("b200", "tcgen05 128x128x64", "mma", {"UTCHMMA": 4, "UTCBAR": 1, "SYNCS.TRYWAIT": 1}),
    ("b200", "tcgen05 128x128x64", "load", {"UTMALDG": 2, "SYNCS.TRYWAIT": 1, "SYNCS.EXPECT": 1}),
]  # fmt: skip
"""Compiled counts of a block of k; those of wgmma and tcgen05 are halves or quarters of loops that are unrolled."""


@pytest.mark.parametrize(("gpu", "tile", "role", "counts"), CASES, ids=["mma.sync", "wgmma", "tcgen05", "bulk copies"])
def test_products_copies_and_waits_are_those_of_the_compiled_loop(
    gpu: str, tile: str, role: str, counts: dict[str, int]
) -> None:
    mix = Counter(row.op for row in main_loop(gpu, tile, role))
    assert {op: mix[op] for op in counts} == counts


def test_a_loop_of_mma_sync_is_as_long_as_tritons() -> None:
    assert 2 * len(main_loop("a100", "multistage 128x128x32", "worker")) == pytest.approx(TRITON, rel=MARGIN)
