"""The FIBER-native backward pass of B200 on one SM, compiled and executed with numbers."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from heddle import sim
from heddle.interp.check import CheckReport, check
from heddle.interp.schedule import random_schedule
from heddle.ir.warp import WarpProgram
from heddle.kernels.attention.backward_fp32_reference import reference
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.sm100_fiber_backward_native import SM100_FIBER_BACKWARD
from heddle.machine import Machine, machine
from heddle.passes import compile_program


def problem(**changes: Any) -> AttentionProblem:
    """Return a problem of one head; `changes` are its fields."""
    sizes = {"batch": 1, "heads_q": 1, "heads_kv": 1, "seqlen_q": 300, "seqlen_kv": 100, "head_dim": 128}
    return AttentionProblem(**{**sizes, "causal": False, "dtype": "fp16", **changes})


@functools.cache
def one_sm() -> Machine:
    """Return a B200 with FIBER, of one SM."""
    return machine("b200+fiber").replace(sms=1)


@functools.cache
def compiled(wanted: AttentionProblem, **changes: int) -> WarpProgram:
    """Return the kernel for a problem, compiled; `changes` are fields of its configuration."""
    config = replace(SM100_FIBER_BACKWARD.candidates(wanted, one_sm())[0], **changes)
    return compile_program(SM100_FIBER_BACKWARD.build(wanted, config, one_sm(), {}), one_sm())


def checked(wanted: AttentionProblem, program: WarpProgram | None = None, seed: int = 0) -> CheckReport:
    """Run with random numbers in the engine's order, or in a random one with `seed`, and compare with float64."""
    program = program or compiled(wanted)
    result = sim.simulate(program, one_sm(), mode="chip", log="all", fast_forward=False)
    if seed:
        result.log = random_schedule(program, seed)
    arrays, expected = reference(wanted, 0)
    names = {tensor.name for tensor in program.tensors}
    inputs = {name: array for name, array in arrays.items() if name in names}
    return check(program, one_sm(), inputs, {n: a for n, a in expected.items() if n in names}, result=result)
