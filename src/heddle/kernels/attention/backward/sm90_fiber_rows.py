"""The wefts of the FIBER-native backward pass on H100 that make P and dS, one block of keys after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod

from heddle.kernels._channels import BitChannel
from heddle.kernels.attention.backward.sm90_fiber_config import BLOCK, HALVES, FiberBackward90Config
from heddle.kernels.attention.backward.sm90_fiber_memory import GROUP, Memory
from heddle.kernels.attention.backward.sm90_fiber_statistics import Statistics
from heddle.kernels.attention.backward.sm90_fiber_turns import Turns
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E
from heddle.lang import Builder, Index, Item, RegisterHandle, RegisterPart, SharedBox


class BlocksOfQueries(ABC):
    """Goes through the blocks of queries of an item."""

    k: Builder
    problem: AttentionProblem
    config: FiberBackward90Config
    memory: Memory
    scores: RegisterHandle

    def run(self, item: Item, has_masked: bool, has_plain: bool) -> None:
        """All blocks of queries that see the keys; those that a mask cuts come first, one at least if there are any."""
        k, memory = self.k, self.memory
        memory.keys.wait()
        memory.values.wait()
        if has_masked:
            for block in k.range(item.masked, name="masked"):
                self._step(item, item.first + block * self.config.tile_m)
            if has_plain:
                with k.when(item.plain):
                    self._plain(item)
        else:
            self._plain(item)
        memory.keys.release()
        memory.values.release()

    def _plain(self, item: Item) -> None:
        for _ in self.k.range(item.plain, name="plain"):
            self._step(item, None)

    @abstractmethod
    def _step(self, item: Item, masked: Index | None) -> None:
        """A block of queries, from row `masked` on if some elements do not take part."""

    def _mask(self, item: Item, query: Index, half: int) -> None:
        """Leave out keys beyond the end and, if causal, queries before the key."""
        self.k.mask(
            self.scores,
            row=item.key + half * BLOCK,
            col=query,
            causal=self.problem.causal,
            limit=self.problem.seqlen_kv,
            diagonal=self.problem.diagonal,
            transposed=True,
        )


class Rows(BlocksOfQueries):
    """S^T = K Q^T and dP^T = V dO^T in registers of their own; P and dS, rounded, to the pool.

    `weights`, `gradients`: P and dS of each block of keys in the pool. dS goes to shared memory, too.
    """

    def __init__(
        self,
        k: Builder,
        problem: AttentionProblem,
        config: FiberBackward90Config,
        memory: Memory,
        turns: Turns,
        statistics: Statistics,
        weights: list[BitChannel],
        gradients: list[BitChannel],
    ) -> None:
        self.k, self.problem, self.config, self.memory, self.turns = k, problem, config, memory, turns
        self.statistics, self.weights, self.gradients = statistics, weights, gradients
        self.quarter = config.tile_m // GROUP
        self.scores, self.weights_gradient = (
            k.registers(name, (BLOCK, config.tile_m), "fp32", warps=(GROUP, 1)) for name in ("s", "dp")
        )

    def _step(self, item: Item, masked: Index | None) -> None:
        """A block of queries, from row `masked` on if some elements do not take part."""
        k, memory = self.k, self.memory
        memory.queries.wait()
        self._multiply_scores(0)
        memory.outputs.wait()
        for half in range(HALVES):
            self._multiply_gradient(half)
            if masked is not None:
                self._mask(item, masked, half)
            self._exponentials(half)
            self._differentiate(half)
            if half < HALVES - 1:  # S may be overwritten before dS has left
                self._multiply_scores(half + 1)
            self._store(half)
        memory.queries.release()
        memory.outputs.release()
        k.fence()
        memory.gradient_full.arrive(memory.gradient_ring)
        memory.gradient_ring.advance()

    def _multiply_scores(self, half: int) -> None:
        """Start S of a block of keys when its turn has come."""
        memory, turns = self.memory, self.turns
        turns.begin(f"s{half}")
        self.k.mma(self.scores, self._own(memory.keys.current, half), memory.queries.current, accumulate=False)
        turns.end(f"s{half}")

    def _multiply_gradient(self, half: int) -> None:
        """Start dP of a block of keys when its turn has come."""
        memory, turns, values = self.memory, self.turns, self._own(self.memory.values.current, half)
        turns.begin(f"dp{half}")
        self.k.mma(self.weights_gradient, values, memory.outputs.current, accumulate=False)
        turns.end(f"dp{half}")

    @staticmethod
    def _own(box: SharedBox, half: int) -> SharedBox:
        return box.part(row=half * BLOCK, rows=BLOCK)

    def _exponentials(self, half: int) -> None:
        """P^T = 2^(S^T scale log2(e) - LSE), in place, and rounded to the pool a quarter later."""
        k, scale, statistics = self.k, self.problem.scale * LOG2_E, self.statistics
        for quarter in range(GROUP):
            part = self._part(self.scores, quarter)
            # in two operations: the first one alone reads LSE, which may be overwritten once it has been given back
            k.elementwise("scaled_sub", part, part, statistics.quarter(statistics.lse, quarter), scalars=(scale,))
            k.elementwise("exp2", part, part)
            if quarter:
                self._round(self.weights[half], self.scores, quarter - 1)
        if half == HALVES - 1:
            k.set_busy_bit(statistics.lse, "empty")
        self._round(self.weights[half], self.scores, GROUP - 1)
        self.weights[half].end_write()

    def _differentiate(self, half: int) -> None:
        """dS = P (dP - rowsum(dO O)), rounded to the pool for dK a quarter later."""
        k, statistics = self.k, self.statistics
        for quarter in range(GROUP):
            part = self._part(self.weights_gradient, quarter)
            k.elementwise("sub", part, part, statistics.quarter(statistics.dpsum, quarter))
            k.elementwise("mul", part, part, self._part(self.scores, quarter))
            if quarter:
                self._round(self.gradients[half], self.weights_gradient, quarter - 1)
        if half == HALVES - 1:
            k.set_busy_bit(statistics.dpsum, "empty")

    def _store(self, half: int) -> None:
        """The last of dS to the pool, and all of it to shared memory, transposed, for dQ."""
        k, memory = self.k, self.memory
        self._round(self.gradients[half], self.weights_gradient, GROUP - 1)
        self.gradients[half].end_write()
        if half == 0:
            memory.gradient_empty.wait(memory.gradient_ring, flip=True)
        columns = memory.gradient[memory.gradient_ring].part(col=half * BLOCK, cols=BLOCK)
        k.store(columns, self.weights_gradient, transposed=True)

    def _part(self, tile: RegisterHandle, quarter: int) -> RegisterPart:
        return tile.columns(quarter * self.quarter, self.quarter)

    def _round(self, target: BitChannel, source: RegisterHandle, quarter: int) -> None:
        self.k.elementwise("cast", self._part(target.tensor, quarter), self._part(source, quarter))
