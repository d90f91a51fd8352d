"""What the FIBER-native attention of B200 runs: its configurations for a problem, their rules, and its tile program."""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels.attention.forward.sm100_fa4_config import BARRIER_BYTES, PAIR_HEAD_DIM, ROWS
from heddle.kernels.attention.forward.sm100_fiber import attention_fiber
from heddle.kernels.attention.forward.sm100_fiber_config import CHUNKS, FiberConfig, shared_bytes, work_items
from heddle.kernels.attention.forward.sm100_fiber_phased import LITERAL, PHASED
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine.spec import Machine

DTYPES = ("fp16", "bf16")
KEYS = 128
"""Keys of a step."""
MAX_STAGES = 4
TILE = (
    TileParameter("stages", int, "blocks of K and of V in shared memory", "2 or more, as shared memory holds"),
    TileParameter("parts", int, "groups of softmax wefts that share a tile's columns", "1, 2"),
    TileParameter("chunk", int, "columns of scores in registers at a time", ", ".join(map(str, CHUNKS))),
    TileParameter("exp_period", int, "columns after which the pattern of polynomials repeats", "even, up to chunk"),
    TileParameter("exp_share", int, "of these the ones exponentiated by a polynomial", "even, 0 to exp_period"),
    TileParameter("rescaled", int, "unmasked steps in which O is rescaled", "0 or more"),
)
"""What the fields of `FiberConfig` may be, for people."""


def candidates(problem: AttentionProblem, machine: Machine) -> list[FiberConfig]:
    """Return configurations worth trying, the one that is taken first. Raises UserError for what cannot be run."""
    _check_problem(problem)
    best = _config(problem, machine)
    return [best, replace(best, exp_share=best.exp_share + 2)]


def build(problem: AttentionProblem, config: FiberConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    _check_problem(problem)
    _check_config(problem, config, machine)
    items = work_items(problem, config, machine.sms)
    clusters = min(len(items["row"]), machine.sms)
    return attention_fiber.build("sm_100", problem, config, items, clusters, params=params)


def _config(problem: AttentionProblem, machine: Machine) -> FiberConfig:
    tiles = 2 if problem.head_dim <= PAIR_HEAD_DIM else 1
    config = FiberConfig(
        schedule="fiber",
        tile_m=tiles * ROWS,
        tile_n=KEYS,
        stages=MAX_STAGES,
        groups=tiles,
        order="static",
        packed=problem.group > 1 and ROWS % problem.group == 0,
    )
    return replace(config, stages=min(MAX_STAGES, _stages_that_fit(problem, config, machine)))


def _stages_that_fit(problem: AttentionProblem, config: FiberConfig, machine: Machine) -> int:
    left = machine.shared_memory_bytes_per_cta - BARRIER_BYTES - shared_bytes(problem, replace(config, stages=0))
    return left // (2 * config.keys * problem.head_dim * problem.element_bytes)


def _check_problem(problem: AttentionProblem) -> None:
    if problem.dtype not in DTYPES:
        raise UserError(f"the FIBER-native attention of sm_100 takes {', '.join(DTYPES)}; got {problem.dtype!r}")


def _check_config(problem: AttentionProblem, config: FiberConfig, machine: Machine) -> None:
    tiles, most = 2 if problem.head_dim <= PAIR_HEAD_DIM else 1, _stages_that_fit(problem, config, machine)
    if (config.tile_m, config.tile_n, config.groups, config.cluster) != (tiles * ROWS, KEYS, tiles, 1):
        raise UserError(
            f"at head_dim {problem.head_dim} a FIBER-thread has {tiles} tile{'s' * (tiles - 1)} of {ROWS} rows and "
            f"steps of {KEYS} keys; got tile_m = {config.tile_m}, tile_n = {config.tile_n}, groups = {config.groups}, "
            f"cluster = {config.cluster}"
        )
    if config.order not in ("static", "launch"):
        raise UserError(f"order must be static or launch, as an item is begun before the last one ends: {config.order}")
    if not 2 <= config.stages <= most:
        raise UserError(f"stages must be 2 to {most} for {config.label()}, as shared memory holds; got {config.stages}")
    if config.parts not in (1, 2) or config.chunk not in CHUNKS:
        raise UserError(f"parts must be 1 or 2 and chunk one of {CHUNKS}; got {config.parts} and {config.chunk}")
    period, share = config.exp_period, config.exp_share
    if period % 2 or not 2 <= period <= config.chunk or share % 2 or not 0 <= share <= period or config.rescaled < 0:
        raise UserError(
            f"exponentials are made in pairs: exp_period must be even and up to {config.chunk}, exp_share even and up "
            f"to exp_period, rescaled at least 0; got {period}, {share} and {config.rescaled}"
        )


SM100_FIBER = NativeKernel(
    candidates=candidates,
    build=build,
    tile=TILE,
    needs=("dynamic_parallelism", "fine_scheduling", "register_sharing"),
    instead=(PHASED, LITERAL),
)
"""The FIBER-native attention of B200; without bits its roles are those of FlashAttention 4, with barriers."""
