"""H100's attention where wefts own no registers and share none: scores, weights and factors pass through shared memory.

The paper words its first ablation step so ("shared-memory exchange"): roles and warp-group instructions as in
`sm90_fiber_phased`, barriers for order, and every tensor that another role reads is written to shared memory.
"""

from __future__ import annotations

from heddle.kernels._channels import SharedChannel
from heddle.kernels.attention.fiber_softmax import BlockSoftmax
from heddle.kernels.attention.forward.sm90_fiber_config import BLOCK_M, FiberConfig
from heddle.kernels.attention.forward.sm90_fiber_memory import GROUP, Memory
from heddle.kernels.attention.forward.sm90_fiber_values import OrderedByBarriers
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Index, Item, SharedBox


class LiteralProducts(OrderedByBarriers[SharedChannel]):
    """Scores and values of all blocks, by warp-group instructions with all first operands in shared memory."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberConfig, memory: Memory) -> None:
        self.k, self.config, self.memory, d = k, config, memory, problem.head_dim
        blocks, tile, grid = range(config.groups), (BLOCK_M, config.tile_n), (GROUP, 1)
        self.scores = [SharedChannel(k, f"scores{b}", tile, "fp32") for b in blocks]
        self.weights = [SharedChannel(k, f"weights{b}", tile, problem.dtype) for b in blocks]
        self.factors = [SharedChannel(k, f"factor{b}", (BLOCK_M, 1), "fp32") for b in blocks]
        self.sums = [k.registers(f"sums{b}", tile, "fp32", warps=grid) for b in blocks]
        self.output = [k.registers(f"output{b}", (BLOCK_M, d), "fp32", warps=grid) for b in blocks]
        self.factor = [k.registers(f"own_factor{b}", (BLOCK_M, 1), "fp32", warps=grid) for b in blocks]

    def score(self, item: Item) -> None:
        """Scores of all blocks of rows with all blocks of keys; a block is stored while the next one is multiplied."""
        k, memory = self.k, self.memory
        memory.query_full.wait(memory.query_ring)
        for _ in k.range(item.more + 1, name="keys"):
            memory.keys.wait()
            for block, sums in enumerate(self.sums):
                k.mma(sums, memory.query_rows(block), memory.keys.current, accumulate=False)
                k.mma_commit()
            for block, sums in enumerate(self.sums):
                k.mma_wait(pending=len(self.sums) - 1 - block)
                self.scores[block].put(sums)
            memory.keys.release()
        memory.release_query()

    def _first_operand(self, block: int) -> SharedBox:
        return self.weights[block].tile[:]

    def _rescale(self, block: int) -> None:
        self.factors[block].get(self.factor[block])
        self.k.elementwise("mul", self.output[block], self.output[block], self.factor[block])


class LiteralSoftmax(BlockSoftmax):
    """One block of 64 rows, in registers of the role's own between a load and a store."""

    def __init__(
        self, k: Builder, problem: AttentionProblem, config: FiberConfig, block: int, products: LiteralProducts
    ) -> None:
        super().__init__(k, problem, config, block, BLOCK_M, GROUP)
        self.scores, self.weights = products.scores[block], products.weights[block]
        self.factor = products.factors[block]
        self.own = k.registers(f"own_scores{block}", (BLOCK_M, config.tile_n), "fp32", warps=(GROUP, 1))

    def _step(self, item: Item, masked_col: Index | None, first: bool) -> None:
        self.scores.get(self.own)
        if masked_col is not None:
            self._mask(item, self.own, masked_col)
        self.online.maximum(self.own)
        if not first:
            self._give_factor()
        self.online.exponentials(self.own)
        self.online.add(self.own)
        self.weights.put(self.own)

    def _give_factor(self) -> None:
        self.factor.put(self.online.correction)
