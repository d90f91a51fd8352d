"""The warp of the backward pass on B200 that issues all five products of a block.

S^T = K Q^T of a block stands before dK += dS^T Q and dQ = dS K of the block before, so that its exponentials run beside
them; dP^T = V dO^T waits until dQ has left the columns that they share; dV += P^T dO is last.
"""

from __future__ import annotations

from heddle.kernels.attention.backward.sm100_fa4_memory import Memory
from heddle.lang import Builder, Index, Item, RingPosition


class Products:
    """The role's code; the ring of Q points behind the block whose scores were issued last."""

    def __init__(self, k: Builder, memory: Memory) -> None:
        self.k, self.memory = k, memory

    def run(self, has: dict[str, bool]) -> None:
        """The CTA's keys: the first block, a loop over the others, dK and dQ of the last."""
        k, memory = self.k, self.memory
        memory.meet()
        for item in k.work():
            self.scores()
            self.weights_gradient()
            self.values(accumulate=False)
            if has["more"]:
                with k.when(item.more):
                    for block in k.range(item.more, name="block"):
                        self.step(block)
            k.mma_commit(memory.dv_full[:])
            self.last(item, has)

    def step(self, block: Index) -> None:
        """Scores of a block, dK and dQ of the one before it, then dP and dV of the block."""
        k, memory = self.k, self.memory
        self.scores()
        before = memory.queries.ring + 0  # the block before lies in the stage that the ring has come round to
        memory.change_full.wait(memory.behind)
        self.keys_gradient(before, first=block)
        k.mma_commit(memory.queries.empty[before])
        self.queries_gradient()
        memory.dq_empty.wait(memory.behind)
        memory.behind.advance()
        self.weights_gradient()
        self.values(accumulate=True)

    def last(self, item: Item, has: dict[str, bool]) -> None:
        """dK and dQ of the last block; dK is complete."""
        k, memory = self.k, self.memory
        before = memory.queries.ring.previous
        memory.change_full.wait(memory.behind)
        if has["more"]:
            with k.when(item.more):
                self.keys_gradient(before)
        if has["only"]:
            with k.when(item.only):
                self.keys_gradient(before, accumulate=False)
        k.mma_commit(memory.dk_full[:])
        k.mma_commit(memory.queries.empty[before])
        self.queries_gradient()
        memory.behind.advance()

    def scores(self) -> None:
        """Start S^T = K Q^T."""
        k, queries = self.k, self.memory.queries
        queries.full.wait(queries.ring)
        k.mma(self.memory.tm_scores[:], self.memory.keys[:], queries.tile[queries.ring], accumulate=False)
        k.mma_commit(self.memory.scores_full[:])
        queries.ring.advance()

    def weights_gradient(self) -> None:
        """Start dP^T = V dO^T."""
        k, memory, outputs = self.k, self.memory, self.memory.outputs
        outputs.full.wait(outputs.ring)
        k.mma(memory.tm_gradient[:], memory.values[:], outputs.tile[outputs.ring], accumulate=False)
        k.mma_commit(memory.gradient_full[:])

    def values(self, *, accumulate: bool) -> None:
        """Start dV += P^T dO when P is there; the block of dO is free afterwards."""
        k, memory, outputs = self.k, self.memory, self.memory.outputs
        memory.weights_full.wait(memory.step)
        k.mma(
            memory.tm_dv[:],
            memory.tm_weights[:],
            outputs.tile[outputs.ring],
            accumulate=accumulate,
            transposed=True,
        )
        k.mma_commit(outputs.empty[outputs.ring])
        outputs.ring.advance()
        memory.step.advance()

    def keys_gradient(self, block: RingPosition, *, first: Index | None = None, accumulate: bool = True) -> None:
        """Start dK += dS^T Q."""
        memory = self.memory
        self.k.mma(
            memory.tm_dk[:],
            memory.tm_change[:],
            memory.queries.tile[block],
            first=first,
            accumulate=accumulate,
            transposed=True,
        )

    def queries_gradient(self) -> None:
        """Start dQ = dS K, in the columns of dP and dS."""
        k, memory = self.k, self.memory
        k.mma(memory.tm_dq[:], memory.change[:], memory.keys[:], accumulate=False, transposed=True, a_transposed=True)
        k.mma_commit(memory.dq_full[:])
        k.mma_commit(memory.change_empty[:])
