"""Tiles, stages and products of the backward pass of FlashAttention 3 on H100, and the shared memory that they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine.spec import Machine

GROUP_ROWS = 64
"""Rows of a warp group: m of a wgmma (PTX ISA)."""
GROUPS = 2
REGISTERS = 24, 240
"""What setmaxnreg gives the producer's warps and the consumers."""
STAGES = 2
"""Blocks of Q, of dO and of dS in shared memory."""
HEAD_DIMS = (64, 128)
STATISTIC_COLS = 64
"""The row statistics of a block take a multiple of so many elements."""
BARRIER_BYTES = 1024
"""Shared memory set aside for mbarriers and the alignment of the first tile."""
ACCUMULATOR_BYTES = dtype_bytes("fp32")

Products = Literal["swapped", "columns", "rows"]
"""How the warp groups divide dQ = dS K: columns of dQ, computed as dQ^T = K^T dS^T; columns of dQ; rows of dQ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fa3BackwardConfig:
    """How the problem is cut: a CTA keeps `tile_n` keys of a query head and goes through its queries, `tile_m` a step.

    `dq`: how the warp groups divide the product for dQ. `release` 1 is the schedule of July 2024, 0 the present one.
    """

    tile_m: int
    tile_n: int
    dq: Products
    release: int = 0

    def label(self) -> str:
        """Return a short name, as in `fa3-bwd 80x128 g2 s2 dq-swapped launch`."""
        release = f" release{self.release}" if self.release else ""
        return f"fa3-bwd {self.tile_m}x{self.tile_n} g{GROUPS} s{STAGES} dq-{self.dq}{release} launch"


def fa3_backward_config(problem: AttentionProblem, machine: Machine) -> Fa3BackwardConfig:
    """Return the configuration that the open kernel takes for a problem."""
    if problem.head_dim == 64:
        return Fa3BackwardConfig(tile_m=128, tile_n=128, dq="rows")
    if problem.causal:
        return Fa3BackwardConfig(tile_m=64, tile_n=128, dq="columns")
    return Fa3BackwardConfig(tile_m=80, tile_n=128, dq="swapped")


def masks_apart(problem: AttentionProblem) -> bool:
    """Return whether blocks that a causal mask cuts have a loop of their own."""
    return problem.causal and problem.head_dim <= 64


def shared_bytes(problem: AttentionProblem, config: Fa3BackwardConfig) -> int:
    """Return the shared memory of a CTA: K and V, stages of Q, dO and dS, of row statistics, one block of dQ."""
    elements = 2 * (config.tile_n + STAGES * config.tile_m) * problem.head_dim + STAGES * config.tile_m * config.tile_n
    statistics = 2 * STAGES * statistic_cols(config.tile_m)
    accumulators = config.tile_m * problem.head_dim + statistics
    return elements * problem.element_bytes + accumulators * ACCUMULATOR_BYTES + BARRIER_BYTES


def statistic_cols(tile_m: int) -> int:
    """Return the elements that the row statistics of a block take."""
    return ceil_div(tile_m, STATISTIC_COLS) * STATISTIC_COLS


def check_fa3_backward(problem: AttentionProblem, config: Fa3BackwardConfig, machine: Machine) -> None:
    """Raise UserError if the kernel cannot run a problem or a configuration."""
    if problem.element_bytes != dtype_bytes("fp16"):
        raise UserError(f"the backward pass takes fp16 and bf16, got {problem.dtype!r}")
    if problem.head_dim not in HEAD_DIMS:
        raise UserError(
            f"the backward pass on {machine.name} has head sizes {', '.join(map(str, HEAD_DIMS))}, "
            f"got {problem.head_dim}",
            hint="the open kernel adds to dQ by atomics at head size 256, which is not built here",
        )
    _check_tile(problem, config)
    needed = shared_bytes(problem, config)
    if needed > machine.shared_memory_bytes_per_cta:
        raise UserError(
            f"{config.label()} takes {needed} bytes of shared memory; a CTA of {machine.name} has "
            f"{machine.shared_memory_bytes_per_cta}",
            hint="use a smaller tile_m",
        )


def _check_tile(problem: AttentionProblem, config: Fa3BackwardConfig) -> None:
    """Raise UserError if a tile does not divide as the products take it."""
    if config.release not in (0, 1):
        raise UserError(f"release must be 0 or 1, got {config.release}")
    if config.release == 1 and problem.causal:
        raise UserError("release = 1 had no causal mask", hint="leave release out, or take causal = 0")
    if config.tile_n != GROUPS * GROUP_ROWS:
        raise UserError(
            f"tile_n is {GROUPS * GROUP_ROWS}: {GROUP_ROWS} keys for each of {GROUPS} warp groups; got {config.tile_n}"
        )
    if config.tile_m % 16 or config.tile_m < 16:
        raise UserError(f"tile_m is a multiple of 16, got {config.tile_m}")
    wanted = {"swapped": 16, "columns": GROUP_ROWS, "rows": GROUPS * GROUP_ROWS}
    if config.dq not in wanted:
        raise UserError(f"dq is one of {', '.join(wanted)}, got {config.dq!r}")
    if config.tile_m % wanted[config.dq]:
        raise UserError(f"with dq = {config.dq} tile_m is a multiple of {wanted[config.dq]}, got {config.tile_m}")
    if config.dq != "rows" and problem.head_dim != GROUPS * GROUP_ROWS:
        raise UserError(
            f"dq = {config.dq} divides the columns of dQ into {GROUP_ROWS} for each of {GROUPS} warp groups; "
            f"head_dim is {problem.head_dim}"
        )
