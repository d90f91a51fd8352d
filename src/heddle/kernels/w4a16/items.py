"""Cuts a W4A16 GEMM into work items."""

from __future__ import annotations

from heddle.kernels.gemm import raster
from heddle.kernels.w4a16.shape import TILE_K, W4Config, W4Problem
from heddle.machine.spec import Machine

WORD = 8
"""Weights along k in a row of the packed tensor."""
CODE_BYTES = {"awq": 1, "aqlm_1x16": 2, "aqlm_2x8": 1}
"""Of one element of the packed tensor."""


def code_bytes(problem: W4Problem) -> int:
    """Return the bytes of the packed tensor for eight weights of a column."""
    return 2 if problem.looks_up else 4


def item_count(problem: W4Problem, config: W4Config) -> int:
    """Return how many work items the problem is cut into."""
    return raster.item_count(problem.gemm, config.gemm(problem.block))


def tail_blocks(problem: W4Problem, config: W4Config) -> int:
    """Return the blocks at the end of an item for which no copy of A is started: all stages are on their way."""
    return (config.stages - 1) * TILE_K // problem.block


def work_items(problem: W4Problem, config: W4Config, machine: Machine) -> dict[str, list[int]]:
    """Return the work items, one list an attribute.

    row, col: corner of the tile, packed_col: the column of packed weights; k_blocks: blocks of k, main: those before
    the blocks without copies. Where the products begin: k_begin (elements), word (rows of packed weights), group;
    tail_word, tail_group: the same of the first block without copies. With split_k > 1 also semaphore and is_last.
    """
    gemm = config.gemm(problem.block)
    items = raster.work_items(problem.gemm, gemm, item_count(problem, config), machine.sms)
    begins = items.get("k_begin", [0] * len(items["row"]))
    tail = tail_blocks(problem, config)
    last = [begin + (blocks - tail) * problem.block for begin, blocks in zip(begins, items["k_blocks"], strict=True)]
    items["packed_col"] = [col * code_bytes(problem) // CODE_BYTES[problem.scheme] for col in items["col"]]
    items |= {"k_begin": begins, "main": [blocks - tail for blocks in items["k_blocks"]]}
    for name, starts in (("", begins), ("tail_", last)):
        items[f"{name}word"] = [start // WORD for start in starts]
        items[f"{name}group"] = [start // problem.group for start in starts]
    return items
