"""Where a CTA's part of a work item lies in the matrices."""

from __future__ import annotations

from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.lang import Builder, Index, Item


def corner(k: Builder, item: Item, config: GemmConfig) -> tuple[Index, Index]:
    """Return the first row and column of this CTA's tile of C; the CTAs of a cluster lie side by side."""
    row = item.row + k.cta_rank * config.tile_m if config.cluster_m > 1 else item.row
    col = item.col + k.cta_rank * config.tile_n if config.cluster_n > 1 else item.col
    return row, col


def head_corner(k: Builder, item: Item, problem: GemmProblem, config: GemmConfig) -> tuple[Index, Index]:
    """Return the same in a table with the columns of one head; whole heads begin at its first."""
    row, _ = corner(k, item, config)
    inside = config.cluster_n > 1 and config.tile_n < problem.head_dim
    return row, item.head_col + k.cta_rank * config.tile_n if inside else item.head_col


def output_corner(k: Builder, item: Item, problem: GemmProblem, config: GemmConfig) -> tuple[Index, Index]:
    """Return the same in C, which has half as many columns if they are gated."""
    row, col = corner(k, item, config)
    if problem.gated:
        col = item.output_col + k.cta_rank * (config.tile_n // 2) if config.cluster_n > 1 else item.output_col
    return row, col


def k_start(item: Item, config: GemmConfig) -> Index | int:
    """Return the first element of k that the item covers."""
    return item.k_begin if config.split_k > 1 else 0
