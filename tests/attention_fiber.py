"""Small FIBER-native attention for tests: compiled, run, checked with numbers."""

from __future__ import annotations

import functools
from typing import Any

from fiber_kernels import one_sm
from heddle import sim
from heddle.interp import random_schedule
from heddle.interp.check import CheckReport, check
from heddle.ir.warp import WarpProgram
from heddle.kernels.attention.forward.sm90_fiber_config import FiberConfig
from heddle.kernels.attention.forward.sm90_fiber_native import CODE
from heddle.kernels.attention.raster import work_items
from heddle.kernels.attention.reference import reference
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine import Machine
from heddle.passes import compile_program

PROBLEM = AttentionProblem(
    batch=1, heads_q=1, heads_kv=1, seqlen_q=256, seqlen_kv=256, head_dim=128, causal=False, dtype="fp16"
)
CONFIG = FiberConfig(
    schedule="fiber", tile_m=128, tile_n=128, stages=2, groups=2, order="static", query_stages=2, output_stages=2
)


LACKS: dict[str, dict[str, Any]] = {
    "bits": {},
    "barriers": {"fine_scheduling": False, "sharing_scope": "subpartition"},
    "shared": {"fine_scheduling": False, "register_sharing": False},
}
"""What the machine lacks for which a way of handing tensors over is made."""


def machine_for(config: FiberConfig) -> Machine:
    """Return an H100 with one cluster and the features that a configuration needs, no more."""
    return one_sm().replace(sms=config.cluster, **LACKS[config.exchange])


@functools.cache
def compiled(problem: AttentionProblem = PROBLEM, config: FiberConfig = CONFIG) -> WarpProgram:
    """Return the kernel for one cluster, compiled."""
    program = CODE[config.exchange].build("sm_90", problem, config, work_items(problem, config), 1)
    return compile_program(program, machine_for(config))


def checked(
    problem: AttentionProblem, config: FiberConfig = CONFIG, program: WarpProgram | None = None, seed: int = 0
) -> CheckReport:
    """Run with random inputs in the engine's order and compare with float64.

    `program`: instead of the kernel's. `seed`: of a random schedule in place of the engine's order.
    """
    program = program or compiled(problem, config)
    at = machine_for(config)
    result = sim.simulate(program, at, mode="chip", log="all", fast_forward=False)
    if seed:
        result.log = random_schedule(program, seed)
    arrays, expected = reference(problem, 0)
    names = {tensor.name for tensor in program.tensors}
    inputs = {name: array for name, array in arrays.items() if name in names}
    outputs = {name: array for name, array in expected.items() if name in names}
    return check(program, at, inputs, outputs, result=result)
