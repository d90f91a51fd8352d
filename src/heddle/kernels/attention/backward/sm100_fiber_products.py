"""The wefts of the FIBER-native backward pass of B200 that issue all products, in one order.

A step of 64 queries: dV += P^T dO, S^T = K Q^T of the step after the next, dK += dS^T Q, dQ^T = K^T dS^T, and
dP^T = V dO^T of the next. First operands come from the pool, so shared memory feeds the second ones alone. P and dS of
a step wait for nothing but its scores and their gradient, which are read long before their columns are needed again.

At head size 64 products are half as long: dP^T is made two steps ahead, too, and dQ = dS K once both steps of a block
are there.
"""

from __future__ import annotations

from heddle.kernels.attention.backward.sm100_fiber_config import LANES
from heddle.kernels.attention.backward.sm100_fiber_memory import Memory
from heddle.lang import Builder, Item, RegisterHandle


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
        for lane in range(self.memory.apart):
            self.weights_gradient(lane, last=last and lane == LANES - 1)

    def block(self, *, fresh: bool = False, before_last: bool = False, last: bool = False) -> None:
        """Both steps of a block; `fresh`: nothing has been added up before."""
        k, memory = self.k, self.memory
        for lane in range(LANES):
            ends, accumulate = last and lane == LANES - 1, not (fresh and lane == 0)
            self.values(lane, accumulate=accumulate)
            if ends:
                memory.dv_done.give()
            if not last:
                self.scores(lane)
                if before_last and lane == LANES - 1:
                    k.set_busy_bit(memory.keys, "empty")
            self.release_outputs(lane)
            if memory.transposed:
                self._gradients(lane, accumulate, last, ends)
            else:
                self._short_gradients(lane, accumulate, before_last, last)

    def _gradients(self, lane: int, accumulate: bool, last: bool, ends: bool) -> None:
        """dK and dQ^T of a step, dP^T of the next."""
        self.keys_gradient(lane, accumulate=accumulate, ends=ends)
        self.queries_gradient_turned(last=ends)
        self.release_queries(lane)
        if not ends:
            self.weights_gradient(lane, last=last)
        self.release_change(self.memory.turned)

    def _short_gradients(self, lane: int, accumulate: bool, before_last: bool, last: bool) -> None:
        """dP^T of the step after the next, dQ of a block, dK of the step.

        Matrix units read in order, so what dQ takes has been read when that of dK has.
        """
        whole = lane == LANES - 1
        if not last:
            self.weights_gradient(lane, last=before_last and whole)
        if whole:
            self.queries_gradient()
        self.keys_gradient(lane, accumulate=accumulate, ends=last and whole)
        if whole:
            self.release_change(self.memory.changes[lane])
        self.release_queries(lane)

    def scores(self, lane: int) -> None:
        """S^T = K Q^T, once the last S of the lane has been read."""
        k, memory, queries = self.k, self.memory, self.memory.queries
        queries.full.wait(queries.ahead)
        k.mma(memory.scores[lane][:], memory.keys, queries.tile[queries.ahead], accumulate=False)
        k.set_busy_bit(memory.scores[lane][:], "full")
        memory.issued[lane].give()
        queries.ahead.advance()

    def weights_gradient(self, lane: int, *, last: bool = False) -> None:
        """dP^T = V dO^T, once what its columns had has been read; `last`: of the item."""
        k, memory, outputs = self.k, self.memory, self.memory.outputs
        outputs.full.wait(outputs.ahead)
        k.mma(memory.gradient[lane][:], memory.values, outputs.tile[outputs.ahead], accumulate=False)
        if last:
            k.set_busy_bit(memory.values, "empty")
        k.set_busy_bit(memory.gradient[lane][:], "full")
        memory.gradient_issued[lane].give()
        outputs.ahead.advance()

    def values(self, lane: int, *, accumulate: bool) -> None:
        """dV += P^T dO."""
        k, memory, outputs = self.k, self.memory, self.memory.outputs
        k.mma(memory.dv[:], memory.weights[lane], outputs.tile[outputs.ring], accumulate=accumulate, transposed=True)
        k.set_busy_bit(memory.weights[lane], "empty")

    def keys_gradient(self, lane: int, *, accumulate: bool, ends: bool) -> None:
        """dK += dS^T Q; `ends`: it is complete."""
        k, memory, queries = self.k, self.memory, self.memory.queries
        k.mma(memory.dk[:], memory.changes[lane], queries.tile[queries.ring], accumulate=accumulate, transposed=True)
        k.set_busy_bit(memory.changes[lane], "empty")
        if ends:
            memory.dk_done.give()

    def queries_gradient(self) -> None:
        """dQ = dS K of a block, once the last has been read."""
        k, memory, ring = self.k, self.memory, self.memory.change_ring
        memory.change_full.wait(ring)
        change, keys = memory.change[ring], memory.keys_shared[:]
        k.mma(memory.dq[:], change, keys, accumulate=False, transposed=True, a_transposed=True)
        k.set_busy_bit(memory.dq[:], "full")
        memory.dq_issued.give()

    def queries_gradient_turned(self, *, last: bool) -> None:
        """dQ^T = K^T dS^T of a step, once the last has been read."""
        k, memory, ring = self.k, self.memory, self.memory.change_ring
        assert memory.turned is not None
        memory.change_full.wait(ring)
        k.mma(memory.dq[:], memory.turned, memory.change[ring], accumulate=False, transposed=True)
        if last:
            k.set_busy_bit(memory.turned, "empty")
        k.set_busy_bit(memory.dq[:], "full")
        memory.dq_issued.give()

    # memory is given back a product late, so that the next one is under way while this one's operands are read

    def release_outputs(self, lane: int) -> None:
        """Give dO of the step back: dV was its last product."""
        outputs = self.memory.outputs
        outputs.empty.arrive(outputs.ring, read=self.memory.weights[lane])
        outputs.ring.advance()

    def release_queries(self, lane: int) -> None:
        """Give Q of the step back: dK was its last product."""
        queries = self.memory.queries
        queries.empty.arrive(queries.ring, read=self.memory.changes[lane])
        queries.ring.advance()

    def release_change(self, read: RegisterHandle | None) -> None:
        """Give dS back when the products with first operand `read` have been read: dQ is made by then."""
        memory = self.memory
        memory.change_empty.arrive(memory.change_ring, read=read)
        memory.change_ring.advance()
