"""FlashAttention 4 on B200: two query tiles of 128 rows a CTA, each with a warp group for its softmax.

The matrix warp issues, block by block and tile by tile, O += P V of the block before and S = Q K^T of the next, so that
one tile's softmax runs beside the other's products. S, P (in the columns of S) and O stay in tensor memory. A group of
correction warps rescales O where a maximum grew, and at the end divides by the sums.
"""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.forward.sm100_fa4_config import (
    check_fa4,
    fa4_config,
    late_tiles,
    shared_bytes,
    work_items,
)
from heddle.kernels.attention.forward.sm100_fa4_correction import Correction
from heddle.kernels.attention.forward.sm100_fa4_memory import Memory
from heddle.kernels.attention.forward.sm100_fa4_products import PairProducts, SingleProducts
from heddle.kernels.attention.forward.sm100_fa4_softmax import Softmax
from heddle.kernels.attention.implementation import Implementation
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.lang import Builder, Index, kernel

REGISTERS = {64: (200, 64, 48), 128: (192, 80, 48), 256: (200, 80, 48)}
"""What setmaxnreg gives softmax, correction and the other warps, by head size."""


@kernel
def attention_fa4(
    k: Builder, problem: AttentionProblem, config: AttentionConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """Softmax of two tiles, correction, products, loads and stores, each in warps of its own."""
    k.flops = problem.flops
    k.work_items(items, clusters=clusters, schedule=config.order)
    memory = Memory(k, problem, config)
    has = {name: any(items[name]) for name in ("more", "only", "masked", "rescaled", "plain")}
    softmax_registers, correction_registers, other_registers = REGISTERS[problem.head_dim]
    late = late_tiles(problem, config)
    for tile in memory.tiles:
        softmax = Softmax(k, problem, config, memory, tile, late[tile.index])
        with k.role(f"softmax{tile.index}", warps=GROUP_WARPS, registers=softmax_registers):
            memory.meet()
            for item in k.work():
                softmax.run(item, has)
    with k.role("correction", warps=GROUP_WARPS, registers=correction_registers):
        Correction(k, problem, memory, late).run(has)
    with k.role("matrix", warps=1, registers=other_registers):
        products = PairProducts if config.groups > 1 else SingleProducts
        products(k, config, memory).run(has)
    with k.role("load", warps=1, registers=other_registers):
        load(k, config, memory, has["more"])
    with k.role("store", warps=1, registers=other_registers):
        store(k, memory)


def load(k: Builder, config: AttentionConfig, memory: Memory, more: bool) -> None:
    """Load Q, and K and V block by block from the last visible one to the first, in the order of the products.

    Two tiles take V of a block before K of the next; a single tile, whose scores are a block ahead, after it.
    """
    pair = config.groups > 1
    memory.meet()
    for item in k.work():
        memory.load_query(memory.tiles[0], item)
        memory.load_block(memory.k_global, item, item.last)
        if pair:
            memory.load_query(memory.tiles[1], item)
            memory.load_block(memory.v_global, item, item.last)
        if more:
            with k.when(item.more):
                for block in k.range(item.more, name="block"):
                    row = item.last + block * -config.tile_n
                    memory.load_block(memory.k_global, item, row - config.tile_n)
                    memory.load_block(memory.v_global, item, row - config.tile_n if pair else row)
        if not pair:
            memory.load_block(memory.v_global, item, Index())
        memory.item.advance()


def store(k: Builder, memory: Memory) -> None:
    """Copy staged tiles of O to global memory, and give their memory back once it is read."""
    copies = memory.d // memory.strip
    memory.meet()
    for item in k.work():
        for tile in memory.tiles:
            tile.staged.wait(memory.item)
            memory.store_output(tile, item)
        for tile in memory.tiles:
            k.tma_store_wait(pending=copies * (len(memory.tiles) - 1 - tile.index))
            tile.sent.arrive(memory.item, by="role")
        memory.item.advance()


FA4 = Implementation(
    schedule="fa4",
    dtypes=("fp16", "bf16"),
    config=fa4_config,
    check=check_fa4,
    shared_bytes=shared_bytes,
    kernel=attention_fa4,
    work_items=work_items,
)
