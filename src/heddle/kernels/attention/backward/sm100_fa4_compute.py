"""A warp group of the backward pass on B200 that computes P and dS: a thread has a key, its columns are queries.

Both groups share a block: of its columns, in parts of 32, each has every second one, so that P and dS may be written
over S and dP as soon as both have read a part. LSE and row sums lie along the columns; all lanes read the same words.
"""

from __future__ import annotations

from typing import Literal

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.backward.sm100_fa4_config import GROUPS, PART, ROWS
from heddle.kernels.attention.backward.sm100_fa4_memory import COMPUTE_WARPS, Memory, QueryBlocks
from heddle.kernels.attention.backward.sm100_fa4_pair_memory import PairMemory, Statistic
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E
from heddle.lang import Builder, Index, Item, RegisterHandle, SharedBox

COMPUTE = 1
"""Named barrier of both groups."""
PARTS = ROWS // (GROUPS * PART)
"""Parts of a block that a group has."""


class Compute:
    """The code of one group for one block of queries after the other."""

    def __init__(self, k: Builder, problem: AttentionProblem, memory: Memory | PairMemory, group: int) -> None:
        self.k, self.problem, self.memory, self.group = k, problem, memory, group
        self.owner: Literal["own", "leader"] = "own"  # of the barrier at which P is announced
        self.weights = [self._tile(f"s{part}") for part in range(PARTS)]
        self.rounded = [self._tile(f"p{part}", problem.dtype) for part in range(PARTS)]
        self.gradient = [self._tile(f"dp{part}") for part in range(PARTS)]
        self.change = [self._tile(f"ds{part}", problem.dtype) for part in range(PARTS)]
        self.lse, self.dpsum = ([self._statistic(f"{name}{p}") for p in range(PARTS)] for name in ("lse", "dpsum"))

    def _tile(self, name: str, dtype: str = "fp32") -> RegisterHandle:
        return self.k.registers(f"{name}_{self.group}", (ROWS, PART), dtype, warps=(GROUP_WARPS, 1))

    def _statistic(self, name: str) -> RegisterHandle:
        return self.k.registers(f"{name}_{self.group}", (1, PART), "fp32", warps=(GROUP_WARPS, 1), spread="columns")

    def column(self, part: int) -> int:
        """The first column of a part."""
        return (part * GROUPS + self.group) * PART

    def statistic(self, blocks: QueryBlocks | Statistic, part: int) -> SharedBox:
        """The row statistics of a part."""
        return blocks.statistics[blocks.ring].part(col=self.column(part), cols=PART)

    def blocks(self, item: Item) -> None:
        """All blocks of queries of an item."""
        for block in self.k.range(item.blocks, name=f"block{self.group}"):
            self.make_weights(item, item.first + block * ROWS)
            self.make_change()
            self.memory.step.advance()

    def make_weights(self, item: Item, query: Index) -> None:
        """P^T = 2^(S^T scale log2(e) - LSE), masked, over the columns of S."""
        k, memory, queries = self.k, self.memory, self.memory.queries
        queries.known.wait(queries.ring)
        memory.scores_full.wait(memory.step)
        for part, tile in enumerate(self.weights):
            k.load(tile, memory.tm_scores[:].columns(self.column(part), PART))
        self.scores_read()
        self.mask(item, query)
        for part, tile in enumerate(self.weights):
            k.load(self.lse[part], self.statistic(queries, part))
            k.elementwise("exp2_scaled_sub", tile, tile, self.lse[part], scalars=(self.problem.scale * LOG2_E,))
            k.elementwise("cast", self.rounded[part], tile)
            if part == 0:
                k.sync(COMPUTE, warps=COMPUTE_WARPS)  # both groups have read S
            target = memory.tm_weights[:].columns(self.column(part), PART)
            k.store(target, self.rounded[part], wait=part == PARTS - 1)
        k.sync(COMPUTE, warps=COMPUTE_WARPS)
        memory.weights_full.arrive(memory.step, cta=self.owner)
        queries.used.arrive(queries.ring)
        queries.ring.advance()

    def key(self, item: Item) -> Index:
        """The first of this CTA's keys."""
        return item.key

    def scores_read(self) -> None:
        """S has been read; nobody waits for it."""

    def mask(self, item: Item, query: Index) -> None:
        """Leave out keys beyond the end and, if causal, queries before the key; in every block, as compiled."""
        for part, tile in enumerate(self.weights):
            self.k.mask(
                tile,
                row=self.key(item),
                col=query + self.column(part),
                causal=self.problem.causal,
                limit=self.problem.seqlen_kv,
                diagonal=self.problem.diagonal,
                transposed=True,
            )

    def make_change(self) -> None:
        """dS^T = P^T (dP^T - row sums), over the columns of dP and into shared memory."""
        k, memory, outputs = self.k, self.memory, self.memory.outputs
        outputs.known.wait(outputs.ring)
        memory.gradient_full.wait(memory.step)
        for part in range(PARTS):
            self.change_of(part)
            if part == 0:
                memory.change_empty.wait(memory.step, flip=True)
            target = memory.tm_change[:].columns(self.column(part), PART)
            k.store(target, self.change[part], wait=part == PARTS - 1)
            k.store(memory.change[:].part(col=self.column(part), cols=PART), self.change[part])
        k.fence()
        k.sync(COMPUTE, warps=COMPUTE_WARPS)
        outputs.used.arrive(outputs.ring)
        outputs.ring.advance()
        memory.change_full.arrive(memory.step)

    def change_of(self, part: int) -> None:
        """Make a part of dS^T from its columns of dP."""
        k, memory, gradient = self.k, self.memory, self.gradient[part]
        k.load(gradient, memory.tm_gradient[:].columns(self.column(part), PART))
        k.sync(COMPUTE, warps=COMPUTE_WARPS)  # both groups have read what this part of dS will cover
        k.load(self.dpsum[part], self.statistic(memory.outputs, part))
        k.elementwise("sub", gradient, gradient, self.dpsum[part])
        k.elementwise("mul", gradient, gradient, self.weights[part])
        k.elementwise("cast", self.change[part], gradient)
