"""The wefts that multiply in the FIBER-native attention of H100, and the order in which they do."""

from __future__ import annotations

from heddle.kernels._channels import BitChannel
from heddle.kernels.attention.forward.sm90_fiber_config import BLOCK_M, FiberConfig
from heddle.kernels.attention.forward.sm90_fiber_memory import GROUP, Memory
from heddle.kernels.attention.forward.sm90_fiber_values import ValueProducts
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Item, RegisterHandle, SharedBox


class Turns:
    """One order for the matrix units: scores of a block, values of the same block one step of keys before.

    `after_scores[b]`: the scores of block b have been issued, so its values may be. `after_values[b]`: the values of
    block b have been issued, so the scores of the next block may be.
    """

    def __init__(self, k: Builder, blocks: int) -> None:
        self.blocks = blocks
        self.after_scores = [k.token(f"after_scores{b}") for b in range(blocks)]
        self.after_values = [k.token(f"after_values{b}") for b in range(blocks)]

    def begin_scores(self, block: int) -> None:
        """Wait until the values before have been issued."""
        self.after_values[block - 1].take()

    def end_scores(self, block: int) -> None:
        """The values of the block may be issued."""
        self.after_scores[block].give()

    def begin_values(self, block: int) -> None:
        """Wait until the scores of the block's next keys have been issued."""
        self.after_scores[block].take()

    def end_values(self, block: int) -> None:
        """The scores of the next block may be issued."""
        self.after_values[block].give()

    def open(self, block: int) -> None:
        """At the entry of a block's value wefts: let the scores run ahead by one step of keys."""
        if block == self.blocks - 1:
            self.end_values(block)
        self.begin_values(block)
        self.end_values(block)

    def close(self) -> None:
        """At the end of the score wefts: let the values catch up, and take the turn that is left over."""
        for block in range(self.blocks):
            self.begin_scores(block)
            self.end_scores(block)
        self.begin_scores(0)


class Products(ValueProducts):
    """Scores and values of all blocks."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberConfig, memory: Memory) -> None:
        self.k, self.config, self.memory, d = k, config, memory, problem.head_dim
        blocks = range(config.groups)
        self.queries = [k.pool(f"queries{b}", (BLOCK_M, d), problem.dtype)[0] for b in range(config.pooled)]
        tile, dtype = (BLOCK_M, config.tile_n), problem.dtype
        self.scores = [BitChannel(k, f"scores{b}", tile, "fp32") for b in blocks]
        self.weights = [BitChannel(k, f"weights{b}", tile, dtype) for b in blocks]
        self.factors = [BitChannel(k, f"factor{b}", (BLOCK_M, 1), "fp32") for b in blocks]
        self.partial = k.registers("partial", (BLOCK_M, config.tile_n), "fp32", warps=(GROUP, 1))
        self.output = [k.registers(f"output{b}", (BLOCK_M, d), "fp32", warps=(GROUP, 1)) for b in blocks]
        self.factor = [k.registers(f"own_factor{b}", (BLOCK_M, 1), "fp32", warps=(GROUP, 1)) for b in blocks]
        self.turns = Turns(k, config.groups)

    def fragments(self) -> None:
        """Q of a tile from shared memory to the pool."""
        memory = self.memory
        memory.query_full.wait(memory.query_ring)
        for block, pool in enumerate(self.queries):
            self.k.load(pool, memory.query_rows(block))
            self.k.set_busy_bit(pool, "full")
        memory.release_query()

    def score(self, item: Item, more: bool) -> None:
        """Scores of all blocks of rows with all blocks of keys, from the last keys to the first."""
        memory, from_memory = self.memory, self.config.pooled < self.config.groups
        if from_memory:
            memory.query_full.wait(memory.query_ring)
        if more:
            with self.k.when(item.more):
                for _ in self.k.range(item.more, name="keys"):
                    self._scores(last=False)
        self._scores(last=True)
        if from_memory:
            memory.release_query()

    def _scores(self, last: bool) -> None:
        """One block of keys; `last`: Q in the pool is given back."""
        k, keys = self.k, self.memory.keys
        keys.wait()
        for block, scores in enumerate(self.scores):
            self.turns.begin_scores(block)
            k.mma(scores.tensor, self._query(block), keys.current, plus=self.partial, accumulate=False)
            scores.end_write()
            if last and block < len(self.queries):
                k.set_busy_bit(self.queries[block], "empty")
            self.turns.end_scores(block)
        keys.release()

    def _query(self, block: int) -> RegisterHandle | SharedBox:
        return self.queries[block] if block < len(self.queries) else self.memory.query_rows(block)

    def _add(self, block: int, first: bool) -> None:
        k, weights, values = self.k, self.weights[block], self.memory.values.current
        self.turns.begin_values(block)
        k.mma(self.output[block], weights.tensor, values, accumulate=not first, transposed=True)
        weights.end_read()
        self.turns.end_values(block)

    def _rescale(self, block: int) -> None:
        k, output, factor = self.k, self.output[block], self.factor[block]
        k.elementwise("copy", factor, self.factors[block].tensor)
        self.factors[block].end_read()
        k.elementwise("mul", output, output, factor)
