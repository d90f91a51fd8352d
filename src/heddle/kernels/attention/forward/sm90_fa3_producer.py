"""The producer of FlashAttention 3 on H100: one warp, or four where they also transpose V."""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.forward.sm90_fa3_memory import Memory
from heddle.kernels.attention.forward.sm90_fa3_transpose import TransposedBlocks
from heddle.kernels.attention.shape import AttentionConfig
from heddle.lang import Builder, Item

QUERY_FREE, NEXT_ITEM, NEXT_TAKEN = 1, 8, 9
"""Named barriers between producer and groups; by the last two the number of the next item is passed on."""


def load_query(k: Builder, config: AttentionConfig, memory: Memory, item: Item) -> None:
    """Load Q when the groups have done with the last tile's."""
    k.sync(QUERY_FREE, warps=config.groups * GROUP_WARPS + memory.producer_warps)
    memory.load_query(item)


def produce(k: Builder, config: AttentionConfig, memory: Memory, more: bool) -> None:
    """Load Q, and K one block ahead of V; V's memory is free when the last tile's output has left it."""
    memory.meet()
    for item in k.work():
        memory.keys.load(item, item.last)
        load_query(k, config, memory, item)
        memory.await_store()
        if more:
            with k.when(item.more):
                for block in k.range(item.more, name="block"):
                    memory.keys.load(item, item.last - config.tile_n + block * -config.tile_n)
                    memory.values.load(item, item.last + block * -config.tile_n)
        memory.values.load(item, memory.first_key(item))
        pass_item(k, config, memory)
        memory.tile.advance()
    memory.part()


def pass_item(k: Builder, config: AttentionConfig, memory: Memory) -> None:
    """Pass the number of the next item, which has come from a global counter meanwhile, on to the groups."""
    if config.order == "dynamic":
        warps = config.groups * GROUP_WARPS + memory.producer_warps
        k.sync(NEXT_TAKEN, warps=warps)
        k.arrive(NEXT_ITEM, warps=warps)


def produce_turned(k: Builder, config: AttentionConfig, memory: Memory, values: TransposedBlocks, more: bool) -> None:
    """Load V and K of a block, then transpose V of the block before: four warps, the first of which loads."""
    memory.meet()
    for item in k.work():
        values.load(item, item.last)
        memory.keys.load(item, item.last)
        load_query(k, config, memory, item)
        memory.await_store()
        if more:
            with k.when(item.more):
                for block in k.range(item.more, name="block"):
                    row = item.last - config.tile_n + block * -config.tile_n
                    values.load(item, row)
                    memory.keys.load(item, row)
                    values.turn()
        values.turn()
        pass_item(k, config, memory)
        memory.tile.advance()
    memory.part()


def produce_turned_first(
    k: Builder, config: AttentionConfig, memory: Memory, values: TransposedBlocks, more: bool
) -> None:
    """As the first release did: K and V of a block are loaded only when V of the block before has been transposed."""
    memory.meet()
    for item in k.work():
        memory.keys.load(item, item.last)
        load_query(k, config, memory, item)
        values.load(item, item.last)
        memory.await_store()
        values.turn()
        if more:
            with k.when(item.more):
                for block in k.range(item.more, name="block"):
                    row = item.last - config.tile_n + block * -config.tile_n
                    memory.keys.load(item, row)
                    values.load(item, row)
                    values.turn()
        memory.tile.advance()
    memory.part()
