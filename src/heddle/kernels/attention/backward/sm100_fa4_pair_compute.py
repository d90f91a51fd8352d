"""A warp group of the backward pass on B200 by pairs of CTAs that computes P and dS of its CTA's keys.

What it computes and how is as with one CTA; dS leaves by halves of the queries, one for each CTA.
"""

from __future__ import annotations

from heddle.kernels.attention.backward.sm100_fa4_compute import COMPUTE, PARTS, Compute
from heddle.kernels.attention.backward.sm100_fa4_config import PART
from heddle.kernels.attention.backward.sm100_fa4_memory import COMPUTE_WARPS
from heddle.kernels.attention.backward.sm100_fa4_pair_memory import PairMemory
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Index, Item


class PairCompute(Compute):
    """The code of one group; the leader is told what it waits for."""

    def __init__(self, k: Builder, problem: AttentionProblem, memory: PairMemory, group: int) -> None:
        super().__init__(k, problem, memory, group)
        self.pair = memory
        self.owner = "leader"

    def key(self, item: Item) -> Index:
        """The first of this CTA's keys."""
        return self.pair.key(item)

    def blocks(self, item: Item) -> None:
        """All blocks of queries of an item."""
        super().blocks(item)
        self.scores_read()  # dS of the last block is stored; nothing follows to be read

    def scores_read(self) -> None:
        """S has been read, which dQ of the block before will cover; that block's dS is stored, too."""
        self.pair.change_full.arrive(cta="leader")

    def make_change(self) -> None:
        """dS^T = P^T (dP^T - row sums), into tensor memory, shared memory and, half of it, the other CTA's."""
        k, memory, outputs = self.k, self.pair, self.pair.outputs
        outputs.known.wait(outputs.ring)
        memory.gradient_full.wait(memory.step)
        for part in range(PARTS):
            self.change_of(part)
            if part == 0:
                memory.change_empty.wait(memory.step, flip=True)
            target = memory.tm_change[:].columns(self.column(part), PART)
            k.store(target, self.change[part], wait=part == PARTS - 1)
            k.store(memory.of_change(part, self.group), self.change[part])
        memory.change_stored.arrive(cta="leader")
        k.fence()
        k.sync(COMPUTE, warps=COMPUTE_WARPS)
        outputs.used.arrive(outputs.ring)
        outputs.ring.advance()
        if self.group == 0:
            memory.send_change()
