"""What the FIBER-native attention of A100 runs: its configurations for a problem, their rules, and its tile program."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels.attention.forward.sm80_fiber import attention_sm80_fiber
from heddle.kernels.attention.forward.sm80_fiber_config import (
    BLOCK_M,
    BLOCK_N,
    WIDE_HEAD_DIM,
    Fiber80Config,
    fiber_items,
    shared_bytes,
)
from heddle.kernels.attention.forward.sm80_fiber_copies import attention_sm80_fiber_copies
from heddle.kernels.attention.forward.sm80_fiber_roles_native import ROLES
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine.spec import Machine

DTYPES = ("fp16", "bf16")
HEAD_DIMS = (64, 128, 256)
PACE = 1
"""Weft-level products wait in a queue of their own: nobody has to leave issue slots to them."""
MAX_STAGES = 4
COPIED_KEYS = {64: 64, 128: 32, 256: 16}
"""Keys of a step, by head size, where each subpartition has a copy of K and V: 64 registers each."""
ATOM_KEYS = 16
"""Of an operand that ldmatrix loads."""
MOST_PACE = 15
TILE = (
    TileParameter("stages", int, "blocks of K and of V in shared memory", "2 or more, as shared memory holds"),
    TileParameter("pace", int, "least cycles between instructions of wefts that do not multiply", "1 to 15"),
    TileParameter("weft_level", int, "products by weft-level instructions (1), or by mma.sync (0)", "0, 1"),
)
"""What the fields of `Fiber80Config` may be, for people."""


def candidates(problem: AttentionProblem, machine: Machine, copies: int = 0) -> list[Fiber80Config]:
    """Return configurations worth trying, the one that is taken first. Raises UserError for what cannot be run."""
    _check_problem(problem)
    blocks = 1 if problem.head_dim >= WIDE_HEAD_DIM else 2
    keys = COPIED_KEYS[problem.head_dim] if copies else BLOCK_N
    config = Fiber80Config(
        schedule="fiber",
        tile_m=blocks * BLOCK_M,
        tile_n=keys,
        stages=MAX_STAGES,
        groups=blocks,
        order="dynamic" if problem.causal else "static",
        pace=PACE,
        copies=copies,
    )
    most = MAX_STAGES * BLOCK_N // keys
    return [replace(config, stages=min(most, _stages_that_fit(problem, config, machine)))]


def build(problem: AttentionProblem, config: Fiber80Config, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    _check_problem(problem)
    _check_config(problem, config, machine)
    items = fiber_items(problem, config)
    clusters = min(len(items["row"]), machine.sms)
    code = attention_sm80_fiber_copies if config.copies else attention_sm80_fiber
    return code.build("sm_80", problem, config, items, clusters, params=params)


def _stages_that_fit(problem: AttentionProblem, config: Fiber80Config, machine: Machine) -> int:
    fixed = shared_bytes(problem, replace(config, stages=0))
    stage = shared_bytes(problem, replace(config, stages=1)) - fixed
    return (machine.shared_memory_bytes_per_cta - fixed) // stage


def _check_problem(problem: AttentionProblem) -> None:
    if problem.dtype not in DTYPES or problem.head_dim not in HEAD_DIMS:
        raise UserError(
            f"the FIBER-native attention of sm_80 takes {', '.join(DTYPES)} and head sizes "
            f"{', '.join(map(str, HEAD_DIMS))}; got {problem.dtype!r} and {problem.head_dim}"
        )


def _check_config(problem: AttentionProblem, config: Fiber80Config, machine: Machine) -> None:
    keys = ATOM_KEYS if config.copies else BLOCK_N
    if config.tile_m != BLOCK_M * config.groups or config.groups not in (1, 2) or config.tile_n % keys:
        raise UserError(
            f"tile_m is {BLOCK_M} rows for each of 1 or 2 groups, and tile_n a multiple of {keys} keys; "
            f"got {config.tile_m}, {config.groups} and {config.tile_n}"
        )
    least, most = 2 + config.copies, _stages_that_fit(problem, config, machine)
    if not least <= config.stages <= most:
        raise UserError(
            f"stages must be {least} to {most} for {config.label()}, as shared memory holds; got {config.stages}"
        )
    if config.weft_level not in (0, 1):
        raise UserError(f"weft_level must be 0 or 1, got {config.weft_level}")
    if not 1 <= config.pace <= MOST_PACE:
        raise UserError(f"pace must be 1 to {MOST_PACE} cycles, got {config.pace}")


COPIES = NativeKernel(
    candidates=partial(candidates, copies=1),
    build=build,
    tile=TILE,
    needs=("dynamic_parallelism", "fine_scheduling", "register_sharing"),
)
SM80_FIBER = NativeKernel(candidates=candidates, build=build, tile=TILE, across=True, instead=(COPIES, ROLES))
"""The FIBER-native attention of A100; where a subpartition shares registers, each has a copy of K and V.

Without bits, wefts share none.
"""
