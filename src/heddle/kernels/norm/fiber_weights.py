"""Where the weights of a FIBER-native RMS normalisation are: once in an SM, or in registers of each working weft."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.kernels._rounding import ceil_div
from heddle.kernels._streams import WEFTS
from heddle.kernels._warp import LANES
from heddle.kernels.norm.rmsnorm import BLOCK, Rows, blocks
from heddle.kernels.norm.shape import NormProblem
from heddle.lang import Builder, GlobalHandle, RegisterHandle, RegisterPart, RegisterQuarter

BLOCK_REGISTERS = BLOCK // (2 * LANES)
"""Of a block of weights."""


class Weights:
    """The weights in the pool: block 4 j + q in subpartition q, in stage j of a tensor of four blocks."""

    def __init__(self, k: Builder, problem: NormProblem, groups: Sequence[int]) -> None:
        count = blocks(problem)
        self.k, self.source = k, k.tensor("W", (count, BLOCK), problem.dtype)
        stages, shape = ceil_div(count, WEFTS), (WEFTS, BLOCK)
        self.tiles = k.pool("weights", shape, problem.dtype, stages=stages, read_by="all", spread="rows")
        self.ready = [k.pool(f"ready_{g}", shape, problem.dtype, read_by="all", spread="rows")[0] for g in groups]
        self.seen = [k.registers(f"seen_{g}", shape, problem.dtype, warps=(WEFTS, 1), spread="rows") for g in groups]

    def load(self) -> None:
        """Load all, and tell the working wefts of each pair that all four wefts have started their loads."""
        for stage, tile in enumerate(self.tiles.stages):
            self.k.load(tile, self.source[stage * WEFTS, 0])
        for ready in self.ready:
            self.k.fill(ready)
            self.k.set_busy_bit(ready, "full")

    def wait(self, group: int) -> None:
        """Wait for the four; empty bits of the weights themselves say when they are there."""
        for quarter in range(WEFTS):
            self.k.elementwise("copy", self.seen[group], self.ready[group].quarter(quarter))
        self.k.set_busy_bit(self.ready[group], "empty")

    def block(self, index: int) -> RegisterQuarter:
        """Return a block of them."""
        return self.tiles[index // WEFTS].quarter(index % WEFTS)


class PooledRows(Rows):
    """A pair's working wefts, which read weights from the pool."""

    def __init__(self, k: Builder, problem: NormProblem, source: GlobalHandle, group: int, weights: Weights) -> None:
        self.pooled = weights
        super().__init__(k, problem, WEFTS, source, f"_{group}", factor_rows=WEFTS)

    def declare_weights(self) -> None:
        """Nothing: they are in the pool."""

    def load_weights(self, index: int) -> None:
        """Nothing: they are in the pool."""

    def block_of_weights(self, index: int) -> RegisterHandle | RegisterQuarter:
        """Return where a block of weights is."""
        return self.pooled.block(index)


class OwnRows(Rows):
    """A pair's working wefts, each with all weights in registers of its own."""

    def declare_weights(self) -> None:
        """Declare all of them."""
        self.whole = self._tile("weights", 1, len(self.firsts) * BLOCK, self.problem.dtype)

    def load_all(self) -> None:
        """Load them, once."""
        self.k.load(self.whole, self.weight[0, 0])

    def load_weights(self, index: int) -> None:
        """Nothing: they are there."""

    def block_of_weights(self, index: int) -> RegisterPart:
        """Return where a block of weights is."""
        return self.whole.columns(self.firsts[index], BLOCK)
