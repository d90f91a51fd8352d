"""The wefts that multiply in the FIBER-native backward pass of A100: all five products, in one order.

S^T = K Q^T and dP^T = V dO^T of a block of keys and queries run before dV += P^T dO, dK += dS^T Q and dQ^T = K^T dS^T
of the block before, whose P and dS are made meanwhile. Rows of the first four are keys, so that P and dS are first
operands where they are made; rows of dQ^T are elements of the head, with dS turned as second operand.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels.attention.backward.sm80_fiber_config import BLOCK_HEAD, BLOCK_KEYS, GROUP, FiberBackward80Config
from heddle.kernels.attention.backward.sm80_fiber_memory import Memory, second_operand
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Item, RegisterHandle

SUMS = 16
"""Registers of the sums of a block of keys and 32 queries that grow on their way to the pool."""
MULTIPLY_REGISTERS = 8
"""Registers of a weft that multiplies, beside dK, dV and sums: addresses, dK and dV on their way out."""


@dataclass(frozen=True, slots=True)
class Channels:
    """What the wefts that multiply exchange with others in the pool, for one block of keys at a time.

    scores, products: S^T and dP^T, [keys, queries]; weights, slopes: P^T and dS^T in the type of Q; turned: dS^T as
    second operand; dq: dQ^T, 64 elements of the head at a time.
    """

    scores: RegisterHandle
    products: RegisterHandle
    weights: RegisterHandle
    slopes: RegisterHandle
    turned: RegisterHandle
    dq: RegisterHandle


def channels(k: Builder, problem: AttentionProblem, config: FiberBackward80Config) -> Channels:
    """Declare them."""
    shape, dtype = (BLOCK_KEYS, config.tile_m), problem.dtype
    return Channels(
        scores=k.pool("scores", shape, "fp32")[0],
        products=k.pool("products", shape, "fp32")[0],
        weights=k.pool("weights", shape, dtype)[0],
        slopes=k.pool("slopes", shape, dtype)[0],
        turned=second_operand(k, "slopes_turned", shape, dtype, (GROUP, 1), config),
        dq=k.pool("dq", (BLOCK_HEAD, config.tile_m), "fp32")[0],
    )


class Products:
    """dK and dV of the FIBER-thread's keys, and the order of all products."""

    def __init__(
        self, k: Builder, problem: AttentionProblem, config: FiberBackward80Config, memory: Memory, pool: Channels
    ) -> None:
        self.k, self.problem, self.memory, self.pool, self.copies = k, problem, memory, pool, config.copies
        self.blocks, self.parts = range(config.groups), range(problem.head_dim // BLOCK_HEAD)
        shape, warps = (BLOCK_KEYS, problem.head_dim), (GROUP, 1)
        self.dk, self.dv = ([k.registers(f"{n}_{b}", shape, "fp32", warps=warps) for b in self.blocks] for n in "kv")
        self.dq_sums = [
            k.registers(f"dq_{h}", (BLOCK_HEAD, config.tile_m), "fp32", warps=warps)
            for h in self.parts
            if config.groups > 1 and not config.copies
        ]

    def tile(self, item: Item, has_one: bool, has_more: bool, has_middle: bool) -> None:
        """All queries of an item, then dK and dV go to memory; sums are cleared while the first products run."""
        k = self.k
        if has_one:
            with k.when(item.one):
                self._scores(0, last=True)
        if has_more:
            with k.when(item.more):
                self._scores(0, last=False)
        for sums in (*self.dk, *self.dv):
            k.fill(sums)
        if has_middle:
            with k.when(item.middle):
                for _ in k.range(item.middle, name="step"):
                    self._step(following="middle")
        if has_more:
            with k.when(item.more):
                self._step(following="last")
        self._step(following="")
        self._store(item)

    def _step(self, following: str) -> None:
        """A block of queries; `following`: the next one is one of the middle, the last, or there is none."""
        for b in self.blocks:
            if b + 1 in self.blocks:
                self._scores(b + 1, last=not following)
            elif following:
                self._scores(0, last=following == "last")
            self._gradients(b, last=not following)

    def _scores(self, b: int, last: bool) -> None:
        """S^T and dP^T of a block of keys; `last`: K and V are given back."""
        k, memory, pool = self.k, self.memory, self.pool
        for target, first, second in (
            (pool.scores, memory.keys[b], memory.queries),
            (pool.products, memory.values[b], memory.gradients),
        ):
            self._multiply(target, first, second, accumulate=False)
            k.set_busy_bit(target, "full")
            if last:
                k.set_busy_bit(first, "empty")
            if b == self.blocks[-1]:
                k.set_busy_bit(second, "empty")

    def _gradients(self, b: int, last: bool) -> None:
        """What P and dS of a block of keys add to dV, dK and dQ; `last`: K is given back.

        Between two parts of dQ is another product, in which the first of them leaves the pool.
        """
        memory, pool = self.memory, self.pool
        self._add(self.dv[b], pool.weights, memory.gradients_turned, b)
        for h in self.parts[:-1]:
            self._add_dq(b, h, last)
        self._add(self.dk[b], pool.slopes, memory.queries_turned, b)
        self._add_dq(b, self.parts[-1], last)
        self.k.set_busy_bit(pool.turned, "empty")

    def _add(self, sums: RegisterHandle, first: RegisterHandle, second: RegisterHandle, b: int) -> None:
        k = self.k
        self._multiply(sums, first, second, transposed=True)
        k.set_busy_bit(first, "empty")
        if b == self.blocks[-1]:
            k.set_busy_bit(second, "empty")

    def _add_dq(self, b: int, h: int, last: bool) -> None:
        """dQ^T grows over the blocks of keys and goes to the pool with the last; products of copies, with each."""
        k, pool, final = self.k, self.pool, b == self.blocks[-1] or self.copies
        keys, sums = self.memory.keys_turned[b][h], self.dq_sums[h] if self.dq_sums else None
        target = pool.dq if final else sums
        assert target is not None
        if self.copies:
            k.mma_apart(target, keys, pool.turned, transposed=True, a_transposed=True, accumulate=False)
        else:
            k.mma(
                target,
                keys,
                pool.turned,
                transposed=True,
                a_transposed=True,
                accumulate=b > 0,
                plus=sums if final else None,
            )
        if final:
            k.set_busy_bit(pool.dq, "full")
        if last:
            k.set_busy_bit(keys, "empty")

    def _multiply(
        self,
        acc: RegisterHandle,
        a: RegisterHandle,
        b: RegisterHandle,
        *,
        accumulate: bool = True,
        transposed: bool = False,
    ) -> None:
        multiply = self.k.mma_apart if self.copies else self.k.mma
        multiply(acc, a, b, accumulate=accumulate, transposed=transposed)

    def _store(self, item: Item) -> None:
        k, memory = self.k, self.memory
        for b in self.blocks:
            k.elementwise("scale", self.dk[b], self.dk[b], scalars=(self.problem.scale,))
            for sums, target in ((self.dv[b], memory.dv), (self.dk[b], memory.dk)):
                k.store(target[item.plane, item.col + b * BLOCK_KEYS, 0], sums)


def multiply_registers(problem: AttentionProblem, config: FiberBackward80Config) -> int:
    """Registers of a weft that multiplies: dK, dV, dQ^T over several blocks of keys, a sum on its way to the pool."""
    sums = SUMS * config.tile_m // 32
    dq = sums * problem.head_dim // BLOCK_HEAD if config.groups > 1 and not config.copies else 0
    return config.groups * problem.head_dim + dq + sums + MULTIPLY_REGISTERS
