"""The products of H100's attention where the machine has no full and empty bits: warp-group instructions and barriers.

Wefts still own no registers: scores, weights and factors are in registers shared inside a subpartition. But a whole
role waits for a whole role at an mbarrier, and products are those of four wefts together, waited for as a group.
"""

from __future__ import annotations

from heddle.kernels._channels import BarrierChannel
from heddle.kernels.attention.forward.sm90_fiber_config import BLOCK_M, FiberConfig
from heddle.kernels.attention.forward.sm90_fiber_memory import GROUP, Memory
from heddle.kernels.attention.forward.sm90_fiber_values import OrderedByBarriers
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Item, RegisterHandle


class PhasedProducts(OrderedByBarriers[BarrierChannel]):
    """Scores and values of all blocks."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberConfig, memory: Memory) -> None:
        self.k, self.config, self.memory, d = k, config, memory, problem.head_dim
        blocks, tile, dtype = range(config.groups), (BLOCK_M, config.tile_n), problem.dtype
        self.scores = [BarrierChannel(k, f"scores{b}", tile, "fp32") for b in blocks]
        self.weights = [BarrierChannel(k, f"weights{b}", tile, dtype) for b in blocks]
        self.factors = [BarrierChannel(k, f"factor{b}", (BLOCK_M, 1), "fp32") for b in blocks]
        self.output = [k.registers(f"output{b}", (BLOCK_M, d), "fp32", warps=(GROUP, 1)) for b in blocks]
        self.factor = [k.registers(f"own_factor{b}", (BLOCK_M, 1), "fp32", warps=(GROUP, 1)) for b in blocks]

    def score(self, item: Item) -> None:
        """Scores of all blocks of rows with all blocks of keys, from the last keys to the first."""
        k, memory = self.k, self.memory
        memory.query_full.wait(memory.query_ring)
        for _ in k.range(item.more + 1, name="keys"):
            memory.keys.wait()
            for block, scores in enumerate(self.scores):
                scores.begin_write()
                k.mma(scores.tensor, memory.query_rows(block), memory.keys.current, accumulate=False)
                k.mma_commit()
                k.mma_wait(pending=0)
                scores.end_write()
            memory.keys.release()
        memory.release_query()

    def _first_operand(self, block: int) -> RegisterHandle:
        return self.weights[block].tensor

    def _rescale(self, block: int) -> None:
        k, output, given = self.k, self.output[block], self.factors[block]
        given.begin_read()
        k.elementwise("copy", self.factor[block], given.tensor)
        given.end_read()
        k.elementwise("mul", output, output, self.factor[block])
