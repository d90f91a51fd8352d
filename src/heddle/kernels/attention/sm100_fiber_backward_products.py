"""The wefts of the FIBER-native backward pass of B200 that issue all products, in one order.

A step of 64 queries: dV += P^T dO, S^T = K Q^T of the step after the next, dK += dS^T Q, dQ^T = K^T dS^T, and
dP^T = V dO^T of the next. First operands come from the pool, so shared memory feeds the second ones alone. P and dS of
a step wait for nothing but its scores and their gradient, which are read long before their columns are needed again.
"""

from __future__ import annotations

from heddle.kernels.attention.sm100_fiber_backward_config import LANES
from heddle.kernels.attention.sm100_fiber_backward_memory import Memory
from heddle.lang import Builder, Item


class Products:
    """The role's code: a position `ring` of steps whose dK, dV, dQ are made, and one `ahead` for S and dP."""

    def __init__(self, k: Builder, memory: Memory) -> None:
        self.k, self.memory = k, memory

    def run(self, item: Item, has: dict[str, bool]) -> None:
        """The blocks of an item: one, two, or more."""
        k = self.k
        if has["only"]:
            with k.when(item.only):
                self.begin(last=True)
                self.block(fresh=True, last=True)
        if has["one"]:
            with k.when(item.one):
                self.begin()
                self.block(fresh=True, before_last=True)
                self.block(last=True)
        if has["two"]:
            with k.when(item.two):
                self.begin()
                self.block(fresh=True)
                if has["inner"]:
                    with k.when(item.inner):
                        for _ in k.range(item.inner, name="inner"):
                            self.block()
                self.block(before_last=True)
                self.block(last=True)

    def begin(self, *, last: bool = False) -> None:
        """The first scores and the first gradient; `last`: there are no other scores."""
        for lane in range(LANES):
            self.scores(lane)
        if last:
            self.k.set_busy_bit(self.memory.keys, "empty")
        self.weights_gradient()

    def block(self, *, fresh: bool = False, before_last: bool = False, last: bool = False) -> None:
        """Both steps of a block; `fresh`: nothing has been added up before."""
        k, memory = self.k, self.memory
        for lane in range(LANES):
            ends = last and lane == LANES - 1
            self.values(accumulate=not (fresh and lane == 0))
            if ends:
                memory.dv_done.give()
            if not last:
                self.scores(lane)
                if before_last and lane == LANES - 1:
                    k.set_busy_bit(memory.keys, "empty")
            self.release_outputs()
            self.keys_gradient(accumulate=not (fresh and lane == 0))
            if ends:
                memory.dk_done.give()
            self.queries_gradient(last=ends)
            self.release_queries()
            if not ends:
                self.weights_gradient(last=last)
            self.release_change()

    def scores(self, lane: int) -> None:
        """S^T = K Q^T, once the last S of the lane has been read."""
        k, memory, queries = self.k, self.memory, self.memory.queries
        queries.full.wait(queries.ahead)
        k.mma(memory.scores[lane][:], memory.keys, queries.tile[queries.ahead], accumulate=False)
        k.set_busy_bit(memory.scores[lane][:], "full")
        memory.issued[lane].give()
        queries.ahead.advance()

    def weights_gradient(self, *, last: bool = False) -> None:
        """dP^T = V dO^T, once the last has been read; `last`: of the item."""
        k, memory, outputs = self.k, self.memory, self.memory.outputs
        outputs.full.wait(outputs.ahead)
        k.mma(memory.gradient[:], memory.values, outputs.tile[outputs.ahead], accumulate=False)
        if last:
            k.set_busy_bit(memory.values, "empty")
        k.set_busy_bit(memory.gradient[:], "full")
        memory.gradient_issued.give()
        outputs.ahead.advance()

    def values(self, *, accumulate: bool) -> None:
        """dV += P^T dO."""
        k, memory, outputs = self.k, self.memory, self.memory.outputs
        k.mma(memory.dv[:], memory.weights, outputs.tile[outputs.ring], accumulate=accumulate, transposed=True)
        k.set_busy_bit(memory.weights, "empty")

    def keys_gradient(self, *, accumulate: bool) -> None:
        """dK += dS^T Q."""
        k, memory, queries = self.k, self.memory, self.memory.queries
        k.mma(memory.dk[:], memory.changes, queries.tile[queries.ring], accumulate=accumulate, transposed=True)
        k.set_busy_bit(memory.changes, "empty")

    def queries_gradient(self, *, last: bool) -> None:
        """dQ^T = K^T dS^T, once the last has been read."""
        k, memory, ring = self.k, self.memory, self.memory.change_ring
        memory.change_full.wait(ring)
        k.mma(memory.dq[:], memory.turned, memory.change[ring], accumulate=False, transposed=True)
        if last:
            k.set_busy_bit(memory.turned, "empty")
        k.set_busy_bit(memory.dq[:], "full")
        memory.dq_issued.give()

    # memory is given back a product late, so that the next one is under way while this one's operands are read

    def release_outputs(self) -> None:
        """Give dO of the step back: dV was its last product."""
        outputs = self.memory.outputs
        outputs.empty.arrive(outputs.ring, read=self.memory.weights)
        outputs.ring.advance()

    def release_queries(self) -> None:
        """Give Q of the step back: dK was its last product."""
        queries = self.memory.queries
        queries.empty.arrive(queries.ring, read=self.memory.changes)
        queries.ring.advance()

    def release_change(self) -> None:
        """Give dS of the step back: dQ was its only product from shared memory."""
        memory = self.memory
        memory.change_empty.arrive(memory.change_ring, read=memory.turned)
        memory.change_ring.advance()
