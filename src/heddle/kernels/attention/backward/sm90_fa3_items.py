"""Cuts the backward pass of FlashAttention 3 into tiles of keys, in the order of the open kernel."""

from __future__ import annotations

from typing import Protocol

from heddle.kernels._limits import check_item_count
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.backward.sm90_fa3_config import ACCUMULATOR_BYTES, Fa3BackwardConfig, masks_apart
from heddle.kernels.attention.shape import AttentionProblem

SECTION_BYTES = 40 << 20
"""Q, dO and dQ of the heads that run side by side in causal problems; the open kernel's share of the 50 MB L2."""


def backward_items(problem: AttentionProblem, config: Fa3BackwardConfig) -> dict[str, list[int]]:
    """Return the work items, one list an attribute: blocks of keys of a query head, in the order of the open kernel.

    q_plane, kv_plane, key: the head and the first key; first, last: first row of the first and last block of queries
    that see the keys; blocks, more: how many there are, and without the last; masked, plain: blocks at the diagonal
    and the others, plain_first: the first row of the latter.
    """
    names = ("q_plane", "kv_plane", "key", "first", "last", "blocks", "more", "masked", "plain", "plain_first")
    items: dict[str, list[int]] = {name: [] for name in names}
    blocks = ceil_div(problem.seqlen_q, config.tile_m)
    for plane, key in key_blocks(problem, config):
        first = max(0, key - problem.diagonal) // config.tile_m if problem.causal else 0
        masked = blocks - first if problem.causal else 0
        if masks_apart(problem):  # up to the block of the query that sees the last of the keys
            last_cut = max(0, key + config.tile_n - 1 - problem.diagonal) // config.tile_m + 1
            masked = min(masked, max(0, last_cut - first))
        values = (
            plane,
            plane // problem.group,
            key,
            first * config.tile_m,
            (blocks - 1) * config.tile_m,
            blocks - first,
            blocks - first - 1,
            masked,
            blocks - first - masked,
            (first + masked) * config.tile_m,
        )
        for name, value in zip(names, values, strict=True):
            items[name].append(value)
    return items


class KeyTiles(Protocol):
    """What a configuration says of tiles of keys."""

    @property
    def tile_n(self) -> int:
        """Keys of a tile."""

    def label(self) -> str:
        """A short name of the configuration."""


def key_blocks(problem: AttentionProblem, config: KeyTiles) -> list[tuple[int, int]]:
    """Return (query head, first key) of every tile, in the order in which they are launched.

    Head by head; in causal problems, where the first keys are seen by the most queries, block by block over the heads
    of a section.
    """
    planes, blocks = problem.batch * problem.heads_q, ceil_div(problem.seqlen_kv, config.tile_n)
    check_item_count(f"{config.label()} cuts {planes} heads of {problem.seqlen_kv} keys", planes * blocks)
    width = section_planes(problem) if problem.causal else 1
    return [
        (plane, block * config.tile_n)
        for first in range(0, planes, width)
        for block in range(blocks)
        for plane in range(first, min(first + width, planes))
    ]


def section_planes(problem: AttentionProblem) -> int:
    """Return the query heads of a section: a power of two of those whose Q, dO and dQ fit `SECTION_BYTES`."""
    head_bytes = problem.seqlen_q * problem.head_dim * (2 * problem.element_bytes + ACCUMULATOR_BYTES)
    return 1 << max(0, (SECTION_BYTES // head_bytes).bit_length() - 1)
