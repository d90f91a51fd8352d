"""Cuts the FIBER-native backward pass of attention on H100 into blocks of keys, in the order of the open kernel."""

from __future__ import annotations

from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.backward.sm90_fa3_items import key_blocks
from heddle.kernels.attention.backward.sm90_fiber_config import FiberBackward90Config
from heddle.kernels.attention.shape import AttentionProblem


def fiber_backward_items(problem: AttentionProblem, config: FiberBackward90Config) -> dict[str, list[int]]:
    """Return the work items, one list an attribute: blocks of keys of a query head.

    q_plane, kv_plane, key: the head and the first key; first, last: first row of the first and last block of queries
    that see the keys; blocks, more: how many there are, and without the last; masked, plain: blocks of which some
    elements do not take part, which come first, and the others. If any item has masked blocks each has one at least.
    """
    names = ("q_plane", "kv_plane", "key", "first", "last", "blocks", "more", "masked", "plain")
    items: dict[str, list[int]] = {name: [] for name in names}
    blocks = ceil_div(problem.seqlen_q, config.tile_m)
    least = int(problem.causal or problem.seqlen_kv % config.tile_n > 0)
    for plane, key in key_blocks(problem, config):
        first = min(max(0, key - problem.diagonal) // config.tile_m, blocks - 1) if problem.causal else 0
        count = blocks - first
        masked = max(least, _masked(problem, config, key, first, count))
        first_row, last_row = first * config.tile_m, (blocks - 1) * config.tile_m
        values = (plane, plane // problem.group, key, first_row, last_row, count, count - 1, masked, count - masked)
        for name, value in zip(names, values, strict=True):
            items[name].append(value)
    return items


def _masked(problem: AttentionProblem, config: FiberBackward90Config, key: int, first: int, count: int) -> int:
    """Blocks from `first` on that a mask cuts: all if keys are missing, else up to the query that sees the last key."""
    if key + config.tile_n > problem.seqlen_kv:
        return count
    if not problem.causal:
        return 0
    cut = ceil_div(max(0, key + config.tile_n - 1 - problem.diagonal), config.tile_m)
    return min(count, max(0, cut - first))
