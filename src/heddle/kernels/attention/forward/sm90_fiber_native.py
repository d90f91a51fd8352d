"""What the FIBER-native attention of H100 runs: its configurations for a problem, their rules, and its tile program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.forward.sm90_fa3_config import fa3_config
from heddle.kernels.attention.forward.sm90_fiber import attention_fiber, attention_fiber_literal, attention_fiber_phased
from heddle.kernels.attention.forward.sm90_fiber_config import (
    BLOCK_M,
    BLOCKS,
    WIDE_HEAD_DIM,
    Exchange,
    FiberConfig,
    shared_bytes,
)
from heddle.kernels.attention.raster import work_items
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import KernelFunction
from heddle.machine.spec import Machine

DTYPES = ("fp16", "bf16")
KEYS = 128
"""Keys of a block; half as many with wide heads, whose outputs leave less room for scores."""
MAX_STAGES = 4
CODE: Mapping[Exchange, KernelFunction] = {
    "bits": attention_fiber,
    "barriers": attention_fiber_phased,
    "shared": attention_fiber_literal,
}
"""The code for each way of handing tensors over."""
POOLED_BYTES = 32 * 1024
"""Q of the blocks that the pool holds: what the registers leave beside scores, outputs and weights."""
TILE = (
    TileParameter("stages", int, "blocks of K and of V in shared memory", "2 or more, as shared memory holds"),
    TileParameter("query_stages", int, "tiles of Q in shared memory", "1 or more, as shared memory holds"),
    TileParameter("pooled", int, "blocks of 64 rows whose Q the pool holds", "0 to 2, as registers hold"),
    TileParameter("cluster", int, "FIBER-threads that load K and V for each other", "1, 2, causal 1"),
)
"""What the fields of `FiberConfig` may be, for people."""


def candidates(problem: AttentionProblem, machine: Machine, exchange: Exchange = "bits") -> list[FiberConfig]:
    """Return configurations worth trying, the one that is taken first. Raises UserError for what cannot be run."""
    _check_problem(problem)
    best = _config(problem, machine, exchange)
    others = [replace(best, cluster=1)] if best.cluster > 1 else []
    others += [replace(best, pooled=0)] if best.pooled else []
    return [best, *others]


def build(problem: AttentionProblem, config: FiberConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    _check_problem(problem)
    _check_config(problem, config, machine)
    items = work_items(problem, config)
    clusters = min(len(items["row"]), machine.sms // config.cluster)
    return CODE[config.exchange].build("sm_90", problem, config, items, clusters, params=params)


def _config(problem: AttentionProblem, machine: Machine, exchange: Exchange) -> FiberConfig:
    wide = problem.head_dim >= WIDE_HEAD_DIM
    tile_m = BLOCKS * BLOCK_M
    packed = fa3_config(problem, machine).packed
    rows = problem.seqlen_q * (problem.group if packed else 1)
    pairs = not problem.causal and not packed and ceil_div(rows, tile_m) % 2 == 0 and machine.max_cluster_size > 1
    config = FiberConfig(
        schedule="fiber",
        tile_m=tile_m,
        tile_n=(KEYS // 2 if wide else KEYS) // (2 if exchange == "shared" else 1),
        stages=MAX_STAGES,
        groups=BLOCKS,
        order="dynamic" if problem.causal else "static",
        cluster=2 if pairs else 1,
        packed=packed,
        query_stages=1 if wide else 2,
        output_stages=1 if wide else BLOCKS,
        pooled=0 if wide or exchange != "bits" else min(BLOCKS, POOLED_BYTES // (tile_m * problem.head_dim * 2)),
        exchange=exchange,
    )
    return replace(config, stages=min(MAX_STAGES, _stages_that_fit(problem, config, machine)))


def _stages_that_fit(problem: AttentionProblem, config: FiberConfig, machine: Machine) -> int:
    fixed = shared_bytes(problem, replace(config, stages=0))
    stage = 2 * config.tile_n * problem.head_dim * problem.element_bytes
    return (machine.shared_memory_bytes_per_cta - fixed) // stage


def _check_problem(problem: AttentionProblem) -> None:
    if problem.dtype not in DTYPES:
        raise UserError(f"the FIBER-native attention of sm_90 takes {', '.join(DTYPES)}; got {problem.dtype!r}")


def _check_config(problem: AttentionProblem, config: FiberConfig, machine: Machine) -> None:
    needed = shared_bytes(problem, config)
    if needed > machine.shared_memory_bytes_per_cta:
        raise UserError(
            f"{config.label()} takes {needed} bytes of shared memory; a FIBER-thread has "
            f"{machine.shared_memory_bytes_per_cta}",
            hint="use fewer stages of K and V or of Q",
        )
    if problem.causal and config.cluster > 1:
        raise UserError(
            f"causal tiles have a number of blocks each: {config.cluster} FIBER-threads cannot load them together",
            hint="leave cluster out, or use cluster=1",
        )
    if config.tile_m != config.groups * BLOCK_M or config.groups < 1:
        raise UserError(f"tile_m is {BLOCK_M} rows for each of the groups; got {config.tile_m} and {config.groups}")
    if config.tile_n % 16 or config.tile_n < 16:
        raise UserError(f"tile_n must be a multiple of 16, got {config.tile_n}")
    if not 0 <= config.pooled <= config.groups or config.cluster not in (1, 2) or config.stages < 1:
        raise UserError(
            f"pooled must be 0 to {config.groups}, cluster 1 or 2 and stages at least 1; got {config.pooled}, "
            f"{config.cluster}, {config.stages}"
        )


LITERAL = NativeKernel(
    candidates=partial(candidates, exchange="shared"), build=build, tile=TILE, needs=("dynamic_parallelism",)
)
PHASED = NativeKernel(
    candidates=partial(candidates, exchange="barriers"),
    build=build,
    tile=TILE,
    needs=("dynamic_parallelism", "register_sharing"),
)
SM90_FIBER = NativeKernel(
    candidates=candidates,
    build=build,
    tile=TILE,
    needs=("dynamic_parallelism", "fine_scheduling", "register_sharing"),
    instead=(PHASED, LITERAL),
)
"""The FIBER-native attention of H100; without bits the roles meet at barriers, without sharing in shared memory."""
