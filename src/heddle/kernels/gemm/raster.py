"""Cuts a GEMM into work items and puts them in an order that the L2 likes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from heddle.kernels._rounding import ceil_div
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem

GROUP_SIZES = (8, 16)
"""Tiles that a group is wide; wider groups share more of one operand and less of the other."""


def grouped_order(rows: int, cols: int, tile: tuple[int, int], wave: int) -> NDArray[np.int64]:
    """Return [tiles, 2]: (row tile, column tile) group by group; inside a group the grouped side runs fastest.

    Side and width are chosen so that the `wave` tiles that run at one time touch the fewest rows of A and B.
    """
    choices = [(side, size) for side in (0, 1) for size in GROUP_SIZES]

    def footprint(choice: tuple[int, int]) -> int:
        side, size = choice
        width = min(size, (rows, cols)[side])
        return width * tile[side] + ceil_div(wave, width) * tile[1 - side]

    side, size = min(choices, key=footprint)
    along, across = (rows, cols) if side == 0 else (cols, rows)
    order = np.empty((along * across, 2), dtype=np.int64)
    for first in range(0, along, size):
        group = np.arange(first, min(first + size, along))
        place = slice(first * across, first * across + len(group) * across)
        order[place, side] = np.tile(group, across)
        order[place, 1 - side] = np.repeat(np.arange(across), len(group))
    return order


def k_slices(k_blocks: int, split_k: int) -> list[tuple[int, int]]:
    """Cut `k_blocks` into `split_k` slices of (first block, blocks) that differ by at most one block."""
    edges = [k_blocks * part // split_k for part in range(split_k + 1)]
    return [(first, last - first) for first, last in pairwise(edges)]


def work_items(problem: GemmProblem, config: GemmConfig, clusters: int, wave: int) -> dict[str, list[int]]:
    """Return the work items of `clusters` clusters, of which `wave` run at one time; one list an attribute.

    row, col: corner of the cluster's tile; k_blocks: steps of tile_k. With gates also output_col, of C; with rope
    rotated, and head_col, the column of the head where the tile begins. With split_k > 1 also k_begin (elements),
    semaphore (index of the tile) and is_last. With the ping-pong schedule also turn0 and turn1: whose turn the item is.
    """
    height, width = config.tile_m * config.cluster_m, config.tile_n * config.cluster_n
    rows, cols = ceil_div(problem.m, height), ceil_div(problem.n, width)
    slices = k_slices(ceil_div(problem.k, config.tile_k), config.split_k)
    order = np.repeat(grouped_order(rows, cols, (height, width), wave), config.split_k, axis=0)
    part = np.arange(len(order)) % config.split_k
    blocks = np.array(slices)[part]
    columns = {"row": order[:, 0] * height, "col": order[:, 1] * width, "k_blocks": blocks[:, 1]}
    if problem.gated:
        columns["output_col"] = columns["col"] // 2
    if problem.rotated:
        columns["rotated"] = (columns["col"] < problem.rotated_cols).astype(np.int64)
        columns["head_col"] = columns["col"] % problem.head_dim
    if config.split_k > 1:
        columns["k_begin"] = blocks[:, 0] * config.tile_k
        columns["semaphore"] = order[:, 0] * cols + order[:, 1]
        columns["is_last"] = (part == config.split_k - 1).astype(np.int64)
    if config.schedule in ("cooperative", "pingpong") and uneven_start(columns["k_blocks"].tolist()):
        columns["k_more"] = columns["k_blocks"] - 1
    if config.schedule == "pingpong":
        odd = np.arange(len(order)) // clusters % 2
        columns["turn0"], columns["turn1"] = 1 - odd, odd
    return {name: column.tolist() for name, column in columns.items()}


def uneven_start(k_blocks: Sequence[int]) -> bool:
    """Return whether some items end with their first step and others do not: only these enter the loop over steps."""
    return min(k_blocks) == 1 < max(k_blocks)


def item_count(problem: GemmProblem, config: GemmConfig) -> int:
    """Return how many work items the problem is cut into."""
    rows = ceil_div(problem.m, config.tile_m * config.cluster_m)
    return rows * ceil_div(problem.n, config.tile_n * config.cluster_n) * config.split_k
