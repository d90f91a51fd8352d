"""Small FIBER-native attention for tests: compiled, run, checked with numbers."""

from __future__ import annotations

import functools
from typing import Any

from fiber_kernels import one_sm, run
from heddle.interp.check import CheckReport, check
from heddle.ir.warp import WarpProgram
from heddle.kernels.attention.raster import work_items
from heddle.kernels.attention.reference import reference
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.kernels.attention.sm90_fiber import attention_fiber
from heddle.kernels.attention.sm90_fiber_config import FiberConfig
from heddle.passes import compile_program

PROBLEM = AttentionProblem(
    batch=1, heads_q=1, heads_kv=1, seqlen_q=256, seqlen_kv=256, head_dim=128, causal=False, dtype="fp16"
)
CONFIG = FiberConfig(
    schedule="fiber", tile_m=128, tile_n=128, stages=2, groups=2, order="static", query_stages=2, output_stages=2
)


@functools.cache
def compiled(problem: AttentionProblem = PROBLEM, config: AttentionConfig = CONFIG) -> WarpProgram:
    """Return the kernel for one FIBER-thread, compiled."""
    program = attention_fiber.build("sm_90", problem, config, work_items(problem, config), 1)
    return compile_program(program, one_sm().replace(sms=config.cluster))


def checked(problem: AttentionProblem, config: AttentionConfig = CONFIG, **given: Any) -> CheckReport:
    """Run with random inputs in the engine's order and compare with float64; `given`: another program or result."""
    program = given.get("program") or compiled(problem, config)
    arrays, expected = reference(problem, 0)
    names = {tensor.name for tensor in program.tensors}
    inputs = {name: array for name, array in arrays.items() if name in names}
    outputs = {name: array for name, array in expected.items() if name in names}
    sms = config.cluster
    return check(program, one_sm().replace(sms=sms), inputs, outputs, result=given.get("result") or run(program))
