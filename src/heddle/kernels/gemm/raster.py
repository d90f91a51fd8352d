"""Cuts a GEMM into work items and puts them in an order that the L2 likes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from heddle.kernels.gemm.shape import GemmConfig, GemmProblem, ceil_div

GROUP_SIZES = (8, 16)
"""Tiles that a group is wide; wider groups share more of one operand and less of the other."""


def grouped_order(rows: int, cols: int, tile: tuple[int, int], wave: int) -> Iterator[tuple[int, int]]:
    """Yield (row tile, column tile) group by group; inside a group the grouped side runs fastest.

    Side and width are chosen so that the `wave` tiles that run at one time touch the fewest rows of A and B.
    """
    choices = [(side, size) for side in (0, 1) for size in GROUP_SIZES]

    def footprint(choice: tuple[int, int]) -> int:
        side, size = choice
        width = min(size, (rows, cols)[side])
        return width * tile[side] + ceil_div(wave, width) * tile[1 - side]

    side, size = min(choices, key=footprint)
    along, across = (rows, cols) if side == 0 else (cols, rows)
    for first in range(0, along, size):
        for other in range(across):
            for position in range(first, min(first + size, along)):
                yield (position, other) if side == 0 else (other, position)


def k_slices(k_blocks: int, split_k: int) -> list[tuple[int, int]]:
    """Cut `k_blocks` into `split_k` slices of (first block, blocks) that differ by at most one block."""
    edges = [k_blocks * part // split_k for part in range(split_k + 1)]
    return [(first, last - first) for first, last in pairwise(edges)]


def work_items(problem: GemmProblem, config: GemmConfig, clusters: int, wave: int) -> dict[str, list[int]]:
    """Return the work items of `clusters` clusters, of which `wave` run at one time; one list an attribute.

    row, col: corner of the cluster's tile; k_blocks: steps of tile_k. With split_k > 1 also k_begin (elements),
    semaphore (index of the tile) and is_last. With the ping-pong schedule also turn0 and turn1: whose turn the item is.
    """
    height, width = config.tile_m * config.cluster_m, config.tile_n * config.cluster_n
    rows, cols = ceil_div(problem.m, height), ceil_div(problem.n, width)
    slices = k_slices(ceil_div(problem.k, config.tile_k), config.split_k)
    order = list(grouped_order(rows, cols, (height, width), wave))
    items = [(row, col, part) for row, col in order for part in range(config.split_k)]
    columns = {
        "row": [row * height for row, _, _ in items],
        "col": [col * width for _, col, _ in items],
        "k_blocks": [slices[part][1] for _, _, part in items],
    }
    if config.split_k > 1:
        columns["k_begin"] = [slices[part][0] * config.tile_k for _, _, part in items]
        columns["semaphore"] = [row * cols + col for row, col, _ in items]
        columns["is_last"] = [int(part == config.split_k - 1) for _, _, part in items]
    if config.schedule == "pingpong":
        columns["turn0"] = [1 - index // clusters % 2 for index in range(len(items))]
        columns["turn1"] = [index // clusters % 2 for index in range(len(items))]
    return columns


def item_count(problem: GemmProblem, config: GemmConfig) -> int:
    """Return how many work items the problem is cut into."""
    rows = ceil_div(problem.m, config.tile_m * config.cluster_m)
    return rows * ceil_div(problem.n, config.tile_n * config.cluster_n) * config.split_k
