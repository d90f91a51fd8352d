"""The warp of a pair's leader that issues the products of the backward pass on B200 for both CTAs.

S^T of a block comes first, then dK of the block before and dP^T, which may follow each other at once, and dQ of the
block before, which shares columns with S^T and needs what the CTAs exchange; dV is last.
"""

from __future__ import annotations

from heddle.kernels.attention.backward.sm100_fa4_config import PAIR, ROWS
from heddle.kernels.attention.backward.sm100_fa4_pair_memory import Operand, PairMemory
from heddle.lang import Barrier, Builder, Index, Item


class PairProducts:
    """The role's code."""

    def __init__(self, k: Builder, memory: PairMemory) -> None:
        self.k, self.memory = k, memory

    def run(self, has: dict[str, bool]) -> None:
        """The pair's keys: the first block, a loop over the others, dK and dQ of the last."""
        k, memory = self.k, self.memory
        k.cluster_sync()
        for item in k.work():
            self.scores()
            self.weights_gradient()
            self.values(accumulate=False)
            memory.keys_full.wait()
            self.wait(memory.change_full)  # S of the first block has been read
            if has["more"]:
                with k.when(item.more):
                    for block in k.range(item.more, name="block"):
                        self.step(block)
            self.commit(memory.dv_full)
            self.last(item, has)

    def step(self, block: Index) -> None:
        """Scores of a block, dK of the one before it, dP of the block, dQ of the one before, dV of the block."""
        memory = self.memory
        memory.dq_empty.wait(memory.behind, flip=True)
        self.scores()
        self.keys_gradient(first=block)
        self.release(memory.of_q_across)
        self.weights_gradient()
        self.queries_gradient()
        self.values(accumulate=True)

    def last(self, item: Item, has: dict[str, bool]) -> None:
        """dK and dQ of the last block; dK is complete."""
        k, memory = self.k, self.memory
        if has["more"]:
            with k.when(item.more):
                self.keys_gradient()
        if has["only"]:
            with k.when(item.only):
                self.keys_gradient(accumulate=False)
        self.release(memory.of_q_across)
        self.commit(memory.dk_full)
        memory.dq_empty.wait(memory.behind, flip=True)
        self.queries_gradient()
        memory.dq_empty.wait(memory.behind, flip=True)  # the other CTA signals this one no more

    def scores(self) -> None:
        """Start S^T = K Q^T."""
        memory = self.memory
        memory.of_q.full.wait(memory.of_q.ring)
        self.k.mma(memory.tm_scores[:], memory.keys[:], memory.q[:], accumulate=False, ctas=PAIR)
        self.commit(memory.scores_full)
        self.release(memory.of_q)

    def weights_gradient(self) -> None:
        """Start dP^T = V dO^T."""
        memory = self.memory
        memory.of_do.full.wait(memory.of_do.ring)
        self.k.mma(memory.tm_gradient[:], memory.values[:], memory.do[:], accumulate=False, ctas=PAIR)
        self.commit(memory.gradient_full)

    def values(self, *, accumulate: bool) -> None:
        """Start dV += P^T dO when P is there; the block of dO is free afterwards."""
        memory = self.memory
        memory.weights_full.wait(memory.step)
        memory.step.advance()
        weights, outputs = memory.tm_weights[:], memory.do_across[:]
        self.k.mma(memory.tm_dv[:], weights, outputs, accumulate=accumulate, transposed=True, ctas=PAIR)
        self.release(memory.of_do)

    def keys_gradient(self, *, first: Index | None = None, accumulate: bool = True) -> None:
        """Start dK += dS^T Q when dS is in tensor memory."""
        memory = self.memory
        memory.of_q_across.full.wait(memory.of_q_across.ring)
        memory.change_stored.wait(memory.behind)
        change, queries = memory.tm_change[:], memory.q_across[:]
        self.k.mma(memory.tm_dk[:], change, queries, first=first, accumulate=accumulate, transposed=True, ctas=PAIR)

    def queries_gradient(self) -> None:
        """Start dQ = dS K when both CTAs have stored dS and got that of the other."""
        memory = self.memory
        self.wait(memory.change_full)
        memory.exchanged.wait(memory.behind)
        change = memory.change[:].part(rows=PAIR * ROWS)
        self.k.mma(
            memory.tm_dq[:],
            change,
            memory.keys_across[:],
            accumulate=False,
            transposed=True,
            a_transposed=True,
            ctas=PAIR,
        )
        self.commit(memory.change_empty)  # before that of dQ, with which its arrival is known at the end
        self.commit(memory.dq_full)
        memory.behind.advance()

    def wait(self, barrier: Barrier) -> None:
        """Wait for a phase of `change_full`, of which there is one more than blocks."""
        barrier.wait(self.memory.read)
        self.memory.read.advance()

    def commit(self, barrier: Barrier) -> None:
        """Arrive in both CTAs when the products so far are complete."""
        self.k.mma_commit(barrier.use(None, cta="all"))

    def release(self, of: Operand) -> None:
        """Give a place back to both CTAs when the products so far have read it."""
        self.k.mma_commit(of.empty.use(of.ring, cta="all"))
        of.ring.advance()
