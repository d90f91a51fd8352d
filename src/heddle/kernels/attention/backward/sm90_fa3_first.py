"""The backward pass of the first release of FlashAttention 3 (July 2024), whose speed its paper shows.

Tiles of 64 queries, the last first, and full attention only. The product for dQ of a block stands alone before the
next block's products: it begins when dS of both groups is in shared memory and the block of dQ before has left it, and
both groups hand their parts over together. Keys beyond the end need no mask, as dK and dV there are not stored. Row
statistics came from global memory, a block ahead; here they come with Q and dO, as later.
Source: github.com/Dao-AILab/flash-attention, hopper/ at 7f67966 (flash_bwd_kernel.h, flash_bwd_launch_template.h).
"""

from __future__ import annotations

from heddle.kernels.attention.backward.sm90_fa3_config import GROUPS, Fa3BackwardConfig
from heddle.kernels.attention.backward.sm90_fa3_consumer import WARPS, Consumer
from heddle.kernels.attention.backward.sm90_fa3_memory import Memory
from heddle.kernels.attention.backward.sm90_fa3_producer import PARTIAL_EMPTY, PARTIAL_FULL
from heddle.lang import Builder, Item


class FirstRelease(Consumer):
    """A warp group: products of a block, and the product for dQ of the block before."""

    def blocks(self, item: Item) -> None:
        """All blocks of queries, from the last to the first."""
        k = self.k
        self.products()
        if self.has_more:
            with k.when(item.more):
                for _ in k.range(item.more, name="others"):
                    self.add_previous()
                    self.products()
        self.add_previous()

    def products(self) -> None:
        """S, dP, their arithmetic, and the products for dV and dK to their end."""
        k, memory, ring = self.k, self.memory, self.memory.ring
        self.multiply_scores()
        self.multiply_weights_gradient()
        k.mma_wait(pending=1)
        self.exponentials()
        k.elementwise("cast", self.weights, self.scores)
        k.load(self.dpsum, memory.outputs.statistic(ring))
        k.mma_wait(pending=0)
        self.differentiate()
        self.store_scores_gradient()
        k.mma(self.dv, self.weights, memory.outputs.rows(ring), transposed=True)
        k.mma_commit()
        k.mma(self.dk, self.scores_gradient, memory.queries.rows(ring), transposed=True)
        k.mma_commit()
        k.mma_wait(pending=0)
        memory.outputs.empty.arrive(ring, by="warp")  # a warp's own loads of statistics are behind it
        memory.queries.empty.arrive(ring, by="warp")
        ring.advance()

    def add_previous(self) -> None:
        """The group's part of dQ of the block before, and its way to the warp that adds it."""
        k, memory = self.k, self.memory
        k.fence()
        k.sync(PARTIAL_EMPTY, warps=WARPS + 1)
        self.multiply_dq(memory.scores[memory.ring.previous])
        k.mma_wait(pending=0)
        self.store_partial()
        k.fence()
        k.arrive(PARTIAL_FULL, warps=WARPS + 1)


def load_first(k: Builder, config: Fa3BackwardConfig, memory: Memory) -> None:
    """Load K and V, then Q and dO block by block, from the last to the first."""
    k.sync()
    for item in k.work():
        memory.load_pair(item)
        for block in k.range(item.blocks, name="loaded"):
            memory.queries.load(item, item.last + block * -config.tile_m)
            memory.outputs.load(item, item.last + block * -config.tile_m)
            memory.ring.advance()


def add_dq_first(k: Builder, config: Fa3BackwardConfig, memory: Memory) -> None:
    """Add dQ of a block when both groups have put their parts in place."""
    k.sync()
    k.arrive(PARTIAL_EMPTY, warps=WARPS + 1)
    for item in k.work():
        for block in k.range(item.blocks, name="added"):
            k.sync(PARTIAL_FULL, warps=WARPS + 1)
            for group in range(GROUPS):
                memory.add_partial(item, group, item.last + block * -config.tile_m)
            k.tma_store_wait(pending=0)
            k.arrive(PARTIAL_EMPTY, warps=WARPS + 1)
