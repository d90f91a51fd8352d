"""The FIBER-native kernels of B200 for tests: compiled, run, and checked with numbers."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from heddle import sim
from heddle.interp.check import CheckReport, check
from heddle.ir.warp import WarpProgram
from heddle.kernels.attention.forward.sm100_fiber_config import FiberConfig
from heddle.kernels.attention.forward.sm100_fiber_native import build, candidates
from heddle.kernels.attention.reference import reference
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.gemm.sm100_fiber import FiberGemm, gemm_sm100_fiber
from heddle.machine import Machine, machine
from heddle.passes import compile_program
from heddle.sim.result import SimResult

GEMM = FiberGemm(m=256, n=96, k=384, tile_n=64, stages=2)
"""Four tiles, two of them beyond the edge."""
ATTENTION = AttentionProblem(
    batch=1, heads_q=1, heads_kv=1, seqlen_q=300, seqlen_kv=200, head_dim=128, causal=False, dtype="fp16"
)
"""Two items for the one SM, the second begun before the first ends; odd lengths."""
CAUSAL = dataclasses.replace(ATTENTION, heads_q=2, seqlen_q=192, seqlen_kv=320, head_dim=64, causal=True)
"""Two query heads share keys and values, in packed rows; masks, and an item with three steps."""
WIDE = dataclasses.replace(ATTENTION, seqlen_q=128, head_dim=256)
"""One tile, whose keys come in two blocks a step."""


@functools.cache
def one_sm() -> Machine:
    """Return a B200 with FIBER, of one SM."""
    return machine("b200+fiber").replace(sms=1)


@functools.cache
def gemm(problem: FiberGemm = GEMM) -> WarpProgram:
    """Return the GEMM, compiled."""
    return compile_program(gemm_sm100_fiber.build("sm_100", problem), one_sm())


@functools.cache
def attention(problem: AttentionProblem = ATTENTION, config: FiberConfig | None = None) -> WarpProgram:
    """Return attention, compiled."""
    config = config or candidates(problem, one_sm())[0]
    return compile_program(build(problem, config, one_sm(), {}), one_sm())


def run(program: WarpProgram, engine: str = "compiled") -> SimResult:
    """Run a program with the log of every cycle."""
    return sim.simulate(program, one_sm(), mode="chip", engine=engine, log="all", fast_forward=False)


def gemm_checked(program: WarpProgram, problem: FiberGemm = GEMM) -> CheckReport:
    """Run a GEMM with random numbers and compare with float64."""
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((problem.m, problem.k)), rng.standard_normal((problem.n, problem.k))
    return check(program, one_sm(), {"A": a, "B": b}, {"C": a @ b.T}, result=run(program))


def attention_checked(program: WarpProgram, problem: AttentionProblem = ATTENTION) -> CheckReport:
    """Run attention with random numbers and compare with float64."""
    inputs, outputs = reference(problem, 1)
    names = {tensor.name for tensor in program.tensors}
    chosen = [{name: values for name, values in group.items() if name in names} for group in (inputs, outputs)]
    return check(program, one_sm(), chosen[0], chosen[1], result=run(program))
