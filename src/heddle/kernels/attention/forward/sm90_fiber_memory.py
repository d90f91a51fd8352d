"""Tensors, shared memory and mbarriers of the FIBER-native attention of H100, and the roles that copy."""

from __future__ import annotations

from heddle.kernels.attention.fiber_blocks import STRIP_BYTES, Blocks
from heddle.kernels.attention.forward.sm90_fiber_config import BLOCK_M, FiberConfig
from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Index, Item, RegisterHandle, SharedBox

GROUP = 4
"""Wefts of a role that computes, one a subpartition."""


class Memory:
    """Q of two tiles, blocks of K and of V, and O on its way out."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberConfig) -> None:
        self.k, self.config, self.d, self.dtype = k, config, problem.head_dim, problem.dtype
        self.strip = STRIP_BYTES // problem.element_bytes
        layout, suffix = planes(problem, config), "_packed" if config.packed else ""
        queries = (layout.count, layout.rows, self.d)
        keys = (problem.batch * problem.heads_kv, problem.seqlen_kv, self.d)
        self.q_global = k.tensor(f"Q{suffix}", queries, problem.dtype)
        self.o_global = k.tensor(f"O{suffix}", queries, problem.output_dtype, role="output")
        keepers = GROUP * config.cluster
        sizes = {"keys": config.tile_n, "stages": config.stages, "cluster": config.cluster}
        self.keys = Blocks(k, "k", k.tensor("K", keys, problem.dtype), readers=keepers, **sizes)
        self.values = Blocks(k, "v", k.tensor("V", keys, problem.dtype), readers=keepers * config.groups, **sizes)
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
