"""Row statistics of the FIBER-native backward pass on H100: in the pool, once in the SM or once in a subpartition."""

from __future__ import annotations

from heddle.kernels.attention.backward.sm90_fiber_config import FiberBackward90Config
from heddle.kernels.attention.backward.sm90_fiber_memory import GROUP, Memory
from heddle.lang import Builder, Item, RegisterHandle, RegisterPart, RegisterQuarter


class Statistics:
    """LSE and row sums of a block of queries in the pool.

    A quarter lies in each subpartition, where all wefts read it; or each has all of them for its own wefts.
    """

    def __init__(self, k: Builder, config: FiberBackward90Config, memory: Memory) -> None:
        self.k, self.memory, self.everywhere = k, memory, config.statistics == "subpartition"
        self.lse, self.dpsum = (self._vector(name, config.tile_m) for name in ("lse", "dpsum"))

    def _vector(self, name: str, rows: int) -> RegisterHandle:
        if self.everywhere:
            return self.k.pool(name, (1, rows), "fp32", spread="columns")[0]
        return self.k.pool(name, (1, rows), "fp32", read_by="all", wefts=(1, GROUP), spread="columns")[0]

    def quarter(self, vector: RegisterHandle, index: int) -> RegisterPart | RegisterQuarter:
        """Return a quarter of a statistic: of its columns, or what a subpartition has."""
        if self.everywhere:
            cols = vector.tile.cols // GROUP
            return vector.columns(index * cols, cols)
        return vector.quarter(index)

    def load(self, item: Item) -> None:
        """Load those of all blocks of queries, each when the one before has been given back."""
        k, memory = self.k, self.memory
        for _ in k.range(item.blocks, name="statistics"):
            for vector, blocks in ((self.lse, memory.queries), (self.dpsum, memory.outputs)):
                blocks.wait()
                k.load(vector, blocks.statistics[blocks.ring])
                k.set_busy_bit(vector, "full")
                blocks.release()
