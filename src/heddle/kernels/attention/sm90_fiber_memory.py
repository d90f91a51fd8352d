"""Tensors, shared memory and mbarriers of the FIBER-native attention of H100, and the roles that copy."""

from __future__ import annotations

from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.sm90_fiber_config import BLOCK_M, FiberConfig
from heddle.lang import Builder, Cta, GlobalHandle, Index, Item, SharedBox

GROUP = 4
"""Wefts of a role that computes, one a subpartition."""
STRIP_BYTES = 128
"""A bulk copy with the 128-byte swizzle moves boxes of at most 128 bytes a row."""


class Blocks:
    """K or V: `stages` blocks in shared memory, filled by the loading weft, given back by the role that multiplies."""

    def __init__(self, memory: Memory, name: str, source: GlobalHandle) -> None:
        k, config = memory.k, memory.config
        self.k, self.config, self.source, self.strip = k, config, source, memory.strip
        self.everyone = memory.everyone
        self.tile = k.shared(name, (config.tile_n, memory.d), memory.dtype, stages=config.stages)
        self.ring = k.ring(f"{name}_ring", config.stages)
        self.full = k.barrier(f"{name}_full", arrivals=1, stages=config.stages)
        self.empty = k.barrier(f"{name}_empty", arrivals=GROUP * config.cluster, stages=config.stages)

    @property
    def current(self) -> SharedBox:
        """The block that the ring points to."""
        return self.tile[self.ring]

    def load(self, item: Item, row: Index) -> None:
        """Wait for a free stage and start the copy of the block at `row`; CTAs of a cluster load a part each."""
        self.empty.wait(self.ring, flip=True)
        self.full.expect(self.ring, bytes=self.tile.stage_bytes)
        for col in range(0, self.tile.tile.cols, self.strip):
            box, source = self.current.part(col=col, cols=self.strip), self.source[item.kv_plane, row, col]
            self.k.tma_load(box, source, self.full[self.ring], multicast=self.config.cluster)
        self.ring.advance()

    def wait(self) -> None:
        """Wait for the block that the ring points to."""
        self.full.wait(self.ring)

    def release(self) -> None:
        """Give a block back once each weft has read it."""
        self.empty.arrive(self.ring, cta=self.everyone)
        self.ring.advance()


class Memory:
    """Q of two tiles, blocks of K and of V, and O on its way out."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberConfig) -> None:
        self.k, self.config, self.d, self.dtype = k, config, problem.head_dim, problem.dtype
        self.strip = STRIP_BYTES // problem.element_bytes
        self.everyone: Cta = "all" if config.cluster > 1 else "own"
        layout, suffix = planes(problem, config), "_packed" if config.packed else ""
        queries = (layout.count, layout.rows, self.d)
        keys = (problem.batch * problem.heads_kv, problem.seqlen_kv, self.d)
        self.q_global = k.tensor(f"Q{suffix}", queries, problem.dtype)
        self.o_global = k.tensor(f"O{suffix}", queries, problem.output_dtype, role="output")
        self.keys = Blocks(self, "k", k.tensor("K", keys, problem.dtype))
        self.values = Blocks(self, "v", k.tensor("V", keys, problem.dtype))
        self.query = k.shared("q", (config.tile_m, self.d), problem.dtype, stages=config.query_stages)
        self.query_ring = k.ring("q_ring", config.query_stages)
        self.query_full = k.barrier("q_full", arrivals=1, stages=config.query_stages)
        self.query_empty = k.barrier("q_empty", arrivals=GROUP, stages=config.query_stages)
        self.output = k.shared("o", (config.tile_m, self.d), problem.output_dtype)
        self.output_ring = k.ring("o_ring", 1)
        self.output_full = k.barrier("o_full", arrivals=GROUP * config.groups)
        self.output_empty = k.barrier("o_empty", arrivals=1)

    def meet(self) -> None:
        """Wait until the barriers of the other CTAs are there."""
        if self.config.cluster > 1:
            self.k.cluster_sync(warps=1)

    def part(self) -> None:
        """Stay until no other CTA of the cluster signals this one any more: all blocks have been given back."""
        if self.config.cluster > 1:
            for blocks in (self.keys, self.values):
                for _ in range(self.config.stages):
                    blocks.empty.wait(blocks.ring, flip=True)
                    blocks.ring.advance()

    def query_rows(self, block: int) -> SharedBox:
        """A block's rows of Q."""
        return self.query[self.query_ring].part(row=block * BLOCK_M, rows=BLOCK_M)

    def output_rows(self, block: int) -> SharedBox:
        """A block's rows of O."""
        return self.output[:].part(row=block * BLOCK_M, rows=BLOCK_M)

    def load(self, item: Item, more: bool) -> None:
        """Q, and K one block ahead of V, from the last block that the tile sees to the first."""
        k, tile_n = self.k, self.config.tile_n
        self._load_query(item)
        self.keys.load(item, item.last)
        if more:
            with k.when(item.more):
                for block in k.range(item.more, name="block"):
                    self.keys.load(item, item.last - tile_n + block * -tile_n)
                    self.values.load(item, item.last + block * -tile_n)
        self.values.load(item, Index())

    def store(self, item: Item) -> None:
        """O to global memory, once all its blocks are there."""
        k = self.k
        self.output_full.wait(self.output_ring)
        for col in range(0, self.d, self.strip):
            k.tma_store(
                self.o_global[item.q_plane, self._row(item), col], self.output[:].part(col=col, cols=self.strip)
            )
        k.tma_store_wait(pending=0)
        self.output_empty.arrive(self.output_ring)
        self.output_ring.advance()

    def _load_query(self, item: Item) -> None:
        ring = self.query_ring
        self.query_empty.wait(ring, flip=True)
        self.query_full.expect(ring, bytes=self.query.stage_bytes)
        for col in range(0, self.d, self.strip):
            source = self.q_global[item.q_plane, self._row(item), col]
            self.k.tma_load(self.query[ring].part(col=col, cols=self.strip), source, self.query_full[ring])
        ring.advance()

    def _row(self, item: Item) -> Index:
        """First row of this CTA's tile; the CTAs of a cluster lie one above the other."""
        return item.row + self.k.cta_rank * self.config.tile_m if self.config.cluster > 1 else item.row
