"""What the FIBER-native backward pass of B200 runs: its configuration for a problem, its rules, its tile program."""

from __future__ import annotations

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels.attention.backward.sm100_fiber import attention_bwd_sm100_fiber
from heddle.kernels.attention.backward.sm100_fiber_config import (
    FiberBackward100Config,
    fiber_backward_items,
    fills_lanes,
    shared_bytes,
)
from heddle.kernels.attention.backward.sm100_fiber_literal import LITERAL
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine.spec import Machine

DTYPES = ("fp16", "bf16")
HEAD_DIMS = (64, 128)
LEAST = {"queries": 3, "outputs": 2}
"""Steps of Q and dO that are in use at a time."""
SHORT_OUTPUTS = 4
"""Steps of dO where dP is made two steps ahead."""
TILE = (
    TileParameter("queries", int, "steps of 64 rows of Q in shared memory", "3 or more, as shared memory holds"),
    TileParameter("outputs", int, "steps of 64 rows of dO in shared memory", "2 or more, as shared memory holds"),
)
"""What the fields of `FiberBackward100Config` may be, for people."""


def candidates(problem: AttentionProblem, machine: Machine) -> list[FiberBackward100Config]:
    """Return the one configuration. Raises UserError for what cannot be run."""
    _check_problem(problem)
    return [FiberBackward100Config() if fills_lanes(problem) else FiberBackward100Config(outputs=SHORT_OUTPUTS)]


def build(
    problem: AttentionProblem, config: FiberBackward100Config, machine: Machine, params: ProgramParams
) -> TileProgram:
    """Return the tile program. Raises UserError if the configuration does not fit."""
    _check_problem(problem)
    _check_config(problem, config, machine)
    return attention_bwd_sm100_fiber.build("sm_100", problem, config, fiber_backward_items(problem), params=params)


def _check_problem(problem: AttentionProblem) -> None:
    if problem.dtype not in DTYPES or problem.head_dim not in HEAD_DIMS:
        raise UserError(
            f"the FIBER-native backward pass of sm_100 takes {', '.join(DTYPES)} and head sizes "
            f"{', '.join(map(str, HEAD_DIMS))}; got {problem.dtype!r} and {problem.head_dim}",
            hint="the modes simt and cuda-native run today's kernel",
        )


def _check_config(problem: AttentionProblem, config: FiberBackward100Config, machine: Machine) -> None:
    for name, least in LEAST.items():
        if getattr(config, name) < least:
            raise UserError(f"{name} must be {least} or more, got {getattr(config, name)}")
    needed = shared_bytes(problem, config)
    if needed > machine.shared_memory_bytes_per_cta:
        raise UserError(
            f"{config.label()} takes {needed} bytes of shared memory; a FIBER-thread of {machine.name} has "
            f"{machine.shared_memory_bytes_per_cta}",
            hint="use fewer steps of Q or dO",
        )


SM100_FIBER_BACKWARD = NativeKernel(
    candidates=candidates,
    build=build,
    tile=TILE,
    needs=("dynamic_parallelism", "fine_scheduling", "register_sharing"),
    instead=(LITERAL,),
)
"""The FIBER-native backward pass of B200, its main kernel."""
