"""The wefts of the FIBER-native backward pass on H100 that make dV and dK in registers, and those that make dQ."""

from __future__ import annotations

from collections.abc import Mapping

from heddle.kernels._channels import BitChannel
from heddle.kernels.attention.backward.sm90_fiber_config import BLOCK, HALVES, FiberBackward90Config
from heddle.kernels.attention.backward.sm90_fiber_memory import GROUP, Memory, StatisticBlocks
from heddle.kernels.attention.backward.sm90_fiber_turns import Turns
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, GlobalHandle, Index, Item, RegisterHandle

STORED = 32
"""Columns of dK or dV that are stored together."""
LATE = HALVES - 1
"""The block of keys whose products come in the cycle of the next block of queries."""


class KeyGradient:
    """dV += P^T dO, or dK += dS^T Q, of some blocks of keys.

    `halves`: the blocks; `factors`: P or dS of each block of keys in the pool; `scale`: of the result.
    """

    def __init__(
        self,
        k: Builder,
        problem: AttentionProblem,
        turns: Turns,
        name: str,
        halves: tuple[int, ...],
        factors: list[BitChannel],
        blocks: StatisticBlocks,
    ) -> None:
        self.k, self.turns, self.name, self.halves, self.factors, self.blocks = k, turns, name, halves, factors, blocks
        shape = (BLOCK, problem.head_dim)
        self.sums = {half: k.registers(f"{name}_{half}", shape, "fp32", warps=(GROUP, 1)) for half in halves}

    def open(self) -> None:
        """Before the first item: nothing has been differentiated yet."""
        if LATE in self.halves:
            self.turns.skip(f"{self.name}{LATE}")

    def close(self) -> None:
        """After the last item: the turns of its last cycle."""
        for half in self.halves:
            if half != LATE:
                self.turns.skip(f"{self.name}{half}")

    def add(self, item: Item) -> None:
        """Add up the products of all blocks of queries."""
        k = self.k
        for block in k.range(item.blocks, name="summed"):
            self.blocks.wait()
            for half in self.halves:
                self._product(block, half)
            self.blocks.release()

    def _product(self, block: Index, half: int) -> None:
        turns, factor = self.turns, self.factors[half]
        turns.begin(f"{self.name}{half}")
        self.k.mma(self.sums[half], factor.tensor, self.blocks.current, first=block, transposed=True)
        factor.end_read()
        turns.end(f"{self.name}{half}")

    def store(self, item: Item, target: GlobalHandle, scale: float = 1.0, *, reduce: bool) -> None:
        """The sums, times `scale`, to global memory; `reduce`: they are added there."""
        store_sums(self.k, self.sums, item, target, scale, reduce=reduce)


def store_sums(
    k: Builder,
    sums: Mapping[int, RegisterHandle],
    item: Item,
    target: GlobalHandle,
    scale: float,
    *,
    reduce: bool,
) -> None:
    """Store the sums of blocks of keys, times `scale`, to global memory; `reduce`: they are added there."""
    for half, total in sums.items():
        if scale != 1.0:
            k.elementwise("scale", total, total, scalars=(scale,))
        for col in range(0, total.tile.cols, STORED):  # part by part: fewer registers for addresses
            box = target[item.kv_plane, item.key + half * BLOCK, col]
            k.store(box, total.columns(col, STORED), reduce=reduce)


class QueryGradient:
    """dQ = dS K of a block of queries, in parts, each added to memory."""

    def __init__(self, k: Builder, config: FiberBackward90Config, memory: Memory, turns: Turns) -> None:
        self.k, self.config, self.memory, self.turns = k, config, memory, turns
        self.part = k.registers("dq_part", memory.dq_shape, "fp32", warps=(GROUP, 1))

    def open(self) -> None:
        """Before the first item: nothing has been differentiated yet."""
        self.turns.skip(*(f"dq{part}" for part in range(self.config.parts)))

    def add(self, item: Item) -> None:
        """The products of all blocks of queries."""
        memory, ring = self.memory, self.memory.gradient_ring
        memory.keys.wait()
        for block in self.k.range(item.blocks, name="multiplied"):
            memory.gradient_full.wait(ring)
            for part in range(self.config.parts):
                self._product(item, block, part)
            ring.advance()
        memory.keys.release()

    def _product(self, item: Item, block: Index, part: int) -> None:
        k, memory, turns = self.k, self.memory, self.turns
        rows, cols = memory.dq_shape
        gradient, keys = memory.gradient[memory.gradient_ring], memory.keys.current
        if rows < self.config.tile_m:
            gradient = gradient.part(row=part * rows, rows=rows)
        else:
            keys = keys.part(col=part * cols, cols=cols)
        turns.begin(f"dq{part}")
        k.mma(self.part, gradient, keys, accumulate=False, transposed=True)
        turns.end(f"dq{part}")
        if part == self.config.parts - 1:
            memory.gradient_empty.arrive(memory.gradient_ring)
        if self.config.dq == "bulk":
            memory.put_partial(self.part)
            return
        row, col = memory.dq_target(item, block, part)
        k.store(memory.tensors.dq[item.q_plane, row, col], self.part, reduce=True)
