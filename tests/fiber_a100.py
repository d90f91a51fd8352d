"""A small FIBER-native GEMM of A100 for tests: compiled, run, and checked with numbers."""

from __future__ import annotations

import functools

import numpy as np

from heddle import sim
from heddle.interp.check import CheckReport, check
from heddle.ir.tile import TileProgram
from heddle.ir.warp import WarpProgram
from heddle.kernels.gemm.sm80_fiber import FiberGemm80, gemm_sm80_fiber
from heddle.machine import Machine, machine
from heddle.passes import compile_program
from heddle.sim.result import SimResult

SMALL = FiberGemm80(m=64, n=64, k=128, tile_m=64, tile_n=64, stages=2)


@functools.cache
def one_sm() -> Machine:
    """Return an A100 with FIBER, of one SM."""
    return machine("a100+fiber").replace(sms=1)


@functools.cache
def tiles(problem: FiberGemm80 = SMALL) -> TileProgram:
    """Return the kernel as tiles."""
    return gemm_sm80_fiber.build("sm_80", problem)


@functools.cache
def compiled(problem: FiberGemm80 = SMALL) -> WarpProgram:
    """Return the kernel, compiled."""
    return compile_program(tiles(problem), one_sm())


def run(program: WarpProgram, engine: str = "compiled") -> SimResult:
    """Run a program with the log of every cycle."""
    return sim.simulate(program, one_sm(), mode="chip", engine=engine, log="all", fast_forward=False)


def checked(program: WarpProgram, problem: FiberGemm80 = SMALL) -> CheckReport:
    """Run a program with random numbers and compare with float64."""
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((problem.m, problem.k)), rng.standard_normal((problem.n, problem.k))
    return check(program, one_sm(), {"A": a, "B": b}, {"C": a @ b.T}, result=run(program))
