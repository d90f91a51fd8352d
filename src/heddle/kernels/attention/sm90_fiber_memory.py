"""Tensors, shared memory and mbarriers of the FIBER-native attention of H100, and the roles that copy."""

from __future__ import annotations

from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.sm90_fiber_config import BLOCK_M, FiberConfig
from heddle.lang import Builder, Cta, GlobalHandle, Index, Item, RegisterHandle, SharedBox

GROUP = 4
"""Wefts of a role that computes, one a subpartition."""
STRIP_BYTES = 128
"""A bulk copy with the 128-byte swizzle moves boxes of at most 128 bytes a row."""


class Blocks:
    """K or V: `stages` blocks in shared memory, filled by the loading weft, given back by `readers` wefts."""

    def __init__(self, memory: Memory, name: str, source: GlobalHandle, readers: int) -> None:
        k, config = memory.k, memory.config
        self.k, self.config, self.source, self.strip = k, config, source, memory.strip
        self.everyone = memory.everyone
        self.tile = k.shared(name, (config.tile_n, memory.d), memory.dtype, stages=config.stages)
        self.ring = k.ring(f"{name}_ring", config.stages)
        self.full = k.barrier(f"{name}_full", arrivals=1, stages=config.stages)
        self.empty = k.barrier(f"{name}_empty", arrivals=readers, stages=config.stages)

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
        keepers = GROUP * config.cluster
        self.keys = Blocks(self, "k", k.tensor("K", keys, problem.dtype), keepers)
        self.values = Blocks(self, "v", k.tensor("V", keys, problem.dtype), keepers * config.groups)
        self.query = k.shared("q", (config.tile_m, self.d), problem.dtype, stages=config.query_stages)
        self.query_ring = k.ring("q_ring", config.query_stages)
        self.query_full = k.barrier("q_full", arrivals=1, stages=config.query_stages)
        readers = GROUP * ((config.pooled > 0) + (config.pooled < config.groups))
        self.query_empty = k.barrier("q_empty", arrivals=readers, stages=config.query_stages)
        self.output = k.shared("o", (BLOCK_M, self.d), problem.output_dtype, stages=config.output_stages)
        self.tile = k.ring("tile", 1)
        self.output_full = [k.barrier(f"o_full{b}", arrivals=GROUP) for b in range(config.groups)]
        self.output_empty = [k.barrier(f"o_empty{b}", arrivals=1) for b in range(config.groups)]

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

    def release_query(self) -> None:
        """Give a tile of Q back once each weft has read it."""
        self.query_empty.arrive(self.query_ring)
        self.query_ring.advance()

    def put_output(self, block: int, output: RegisterHandle) -> None:
        """A block's O on its way out, once its stage is free: blocks that share one stage take turns."""
        shares = self.config.output_stages < self.config.groups
        before = self.output_empty[block - 1 if shares else block]
        before.wait(self.tile, flip=block == 0 or not shares)
        self.k.store(self._output(block), output)
        self.k.fence()
        self.output_full[block].arrive(self.tile)
        self.tile.advance()

    def _output(self, block: int) -> SharedBox:
        return self.output.stage(block % self.config.output_stages)

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
        """O to global memory, block by block."""
        k = self.k
        for block in range(self.config.groups):
            self.output_full[block].wait(self.tile)
            row = self._row(item) + block * BLOCK_M
            for col in range(0, self.d, self.strip):
                strip = self._output(block).part(col=col, cols=self.strip)
                k.tma_store(self.o_global[item.q_plane, row, col], strip)
            k.tma_store_wait(pending=0)
            self.output_empty[block].arrive(self.tile)
        self.tile.advance()

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
