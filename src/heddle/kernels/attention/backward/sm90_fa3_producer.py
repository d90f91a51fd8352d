"""The producer's warps of the backward pass on H100: one loads, one adds dQ to global memory."""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.backward.sm90_fa3_config import GROUPS, Fa3BackwardConfig
from heddle.kernels.attention.backward.sm90_fa3_memory import Memory
from heddle.lang import Builder

PARTIAL_FULL, PARTIAL_EMPTY = 3, 3 + GROUPS
"""First named barriers of the warp groups with the warp that adds dQ."""
HANDOVER_WARPS = GROUP_WARPS + 1


def load(k: Builder, config: Fa3BackwardConfig, memory: Memory, more: bool) -> None:
    """Load Q and its statistic, K and V, then dO of a block before Q of the next."""
    memory.meet()
    for item in k.work():
        memory.queries.load(item, item.first)
        memory.load_pair(item)
        if more:
            with k.when(item.more):
                for block in k.range(item.more, name="loaded"):
                    memory.outputs.load(item, item.first + block * config.tile_m)
                    memory.ring.advance()
                    memory.queries.load(item, item.first + config.tile_m + block * config.tile_m)
        memory.outputs.load(item, item.last)
        memory.ring.advance()


def add_dq(k: Builder, config: Fa3BackwardConfig, memory: Memory) -> None:
    """Add each group's part of dQ to global memory by a bulk copy, and give its memory back when it has been read."""
    memory.meet()
    for group in range(GROUPS):
        k.arrive(PARTIAL_EMPTY + group, warps=HANDOVER_WARPS)
    for item in k.work():
        for block in k.range(item.blocks, name="added"):
            for group in range(GROUPS):
                k.sync(PARTIAL_FULL + group, warps=HANDOVER_WARPS)
                memory.add_partial(item, group, item.first + block * config.tile_m)
            for group in range(GROUPS):
                k.tma_store_wait(pending=GROUPS - 1 - group)
                k.arrive(PARTIAL_EMPTY + group, warps=HANDOVER_WARPS)
