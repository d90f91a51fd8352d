"""Row statistics of the FIBER-native backward pass on H100: loaded once, read by the wefts of all subpartitions."""

from __future__ import annotations

from heddle.kernels.attention.backward.sm90_fiber_config import FiberBackward90Config
from heddle.kernels.attention.backward.sm90_fiber_memory import GROUP, Memory
from heddle.lang import Builder, Item, RegisterHandle


class Statistics:
    """LSE and row sums of a block of queries in the pool, a quarter in each subpartition, where all wefts read them."""

    def __init__(self, k: Builder, config: FiberBackward90Config, memory: Memory) -> None:
        self.k, self.memory = k, memory
        self.lse, self.dpsum = (self._vector(name, config.tile_m) for name in ("lse", "dpsum"))

    def _vector(self, name: str, rows: int) -> RegisterHandle:
        return self.k.pool(name, (1, rows), "fp32", read_by="all", wefts=(1, GROUP), spread="columns")[0]

    def load(self, item: Item) -> None:
        """Load those of all blocks of queries, each when the one before has been given back."""
        k, memory = self.k, self.memory
        for _ in k.range(item.blocks, name="statistics"):
            for vector, blocks in ((self.lse, memory.queries), (self.dpsum, memory.outputs)):
                blocks.wait()
                k.load(vector, blocks.statistics[blocks.ring])
                k.set_busy_bit(vector, "full")
                blocks.release()
