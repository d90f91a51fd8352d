"""What the FIBER-native backward pass of A100 runs: its configurations for a problem, their rules, its tile program."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels.attention.backward.sm80_fiber import attention_bwd_sm80_fiber
from heddle.kernels.attention.backward.sm80_fiber_config import (
    FiberBackward80Config,
    fiber_backward_items,
    shared_bytes,
)
from heddle.kernels.attention.backward.sm80_fiber_literal import LITERAL
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine.spec import Machine

DTYPES = ("fp16", "bf16")
MAX_STAGES = 5
LEAST_STAGES = 3
STEP = 32
"""Queries of a step: 16 for each of the two subpartitions in which Q and dO lie turned."""
STEP_OF_COPIES = 16
"""The same where each subpartition has all of Q and dO."""
CONFIGS = {
    64: FiberBackward80Config(tile_m=32, groups=2, stages=MAX_STAGES),
    128: FiberBackward80Config(tile_m=32, groups=1, stages=MAX_STAGES),
}
"""By head size: dK and dV take a quarter of the registers, 128 in each subpartition."""
MOST_PACE = 15
TILE = (
    TileParameter("tile_m", int, "queries of a step", "32, with copies 16: registers hold no more"),
    TileParameter(
        "groups", int, "blocks of 64 keys that a FIBER-thread keeps", "1, at head size 64 also 2, as registers hold"
    ),
    TileParameter("stages", int, "blocks of Q and dO in shared memory", "3 or more, as shared memory holds"),
    TileParameter("pace", int, "least cycles between instructions of wefts that do not multiply", "1 to 15"),
)
"""What the fields of `FiberBackward80Config` may be, for people."""


def candidates(problem: AttentionProblem, machine: Machine, copies: bool = False) -> list[FiberBackward80Config]:
    """Return configurations worth trying, the one that is taken first. Raises UserError for what cannot be run."""
    _check_problem(problem)
    config = CONFIGS[problem.head_dim]
    if copies:
        config = replace(config, tile_m=STEP_OF_COPIES, copies=True)
    return [replace(config, stages=min(MAX_STAGES, _stages_that_fit(problem, config, machine)))]


def build(
    problem: AttentionProblem, config: FiberBackward80Config, machine: Machine, params: ProgramParams
) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    _check_problem(problem)
    _check_config(problem, config, machine)
    items = fiber_backward_items(problem, config)
    clusters = min(len(items["col"]), machine.sms)
    return attention_bwd_sm80_fiber.build("sm_80", problem, config, items, clusters, params=params)


def _stages_that_fit(problem: AttentionProblem, config: FiberBackward80Config, machine: Machine) -> int:
    fixed = shared_bytes(problem, replace(config, stages=0))
    stage = shared_bytes(problem, replace(config, stages=1)) - fixed
    return (machine.shared_memory_bytes_per_cta - fixed) // stage


def _check_problem(problem: AttentionProblem) -> None:
    if problem.dtype not in DTYPES or problem.head_dim not in CONFIGS:
        raise UserError(
            f"the FIBER-native backward pass of sm_80 takes {', '.join(DTYPES)} and head sizes "
            f"{', '.join(map(str, CONFIGS))}; got {problem.dtype!r} and {problem.head_dim}",
            hint="at head size 256 dK, dV and operands alone take 576 of the 504 registers of a subpartition; modes "
            "simt and cuda-native run today's kernel",
        )


def _check_config(problem: AttentionProblem, config: FiberBackward80Config, machine: Machine) -> None:
    groups = CONFIGS[problem.head_dim].groups
    step = STEP_OF_COPIES if config.copies else STEP
    if config.tile_m != step or not 1 <= config.groups <= groups:
        allowed = " to ".join(map(str, sorted({1, groups})))
        raise UserError(
            f"at head size {problem.head_dim} registers hold tile_m = {step} queries of a step and groups = {allowed}; "
            f"got {config.tile_m} and {config.groups}"
        )
    most = _stages_that_fit(problem, config, machine)
    if not LEAST_STAGES <= config.stages <= most:
        raise UserError(
            f"stages must be {LEAST_STAGES} to {most} for {config.label()}, as shared memory holds; got {config.stages}"
        )
    if not 1 <= config.pace <= MOST_PACE:
        raise UserError(f"pace must be 1 to {MOST_PACE} cycles, got {config.pace}")


COPIES = NativeKernel(candidates=partial(candidates, copies=True), build=build, tile=TILE)
"""For machines whose registers are shared inside a subpartition only."""
SM80_FIBER_BACKWARD = NativeKernel(
    candidates=candidates, build=build, tile=TILE, across=True, instead=(COPIES, LITERAL)
)
"""The FIBER-native backward pass of A100, its main kernel."""
