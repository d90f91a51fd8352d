"""Tensors, shared memory and mbarriers of FlashAttention 3 on H100, and the copies between them."""

from __future__ import annotations

from heddle.ir.dtypes import dtype_bytes
from heddle.kernels.attention.forward.sm90_fa3_config import GROUP_ROWS, TRANSPOSING_WARPS, transposes
from heddle.kernels.attention.forward.sm90_fa3_transpose import TransposedBlocks
from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.lang import Builder, Cta, GlobalHandle, Index, Item, SharedBox

STRIP_BYTES = 128
"""A bulk copy with the 128-byte swizzle moves boxes of at most 128 bytes a row."""


class Blocks:
    """K or V: `stages` blocks in shared memory, filled by the producer and given back by every warp group."""

    def __init__(self, memory: Memory, name: str, source: GlobalHandle, dtype: str, readers: int = 0) -> None:
        """Declare the blocks; `readers` warp groups give a block back, by default the consumers of all CTAs."""
        k, config = memory.k, memory.config
        self.k, self.config, self.source, self.strip = k, config, source, memory.strip
        self.everyone = memory.everyone
        self.tile = k.shared(name, (config.tile_n, memory.d), dtype, stages=config.stages)
        self.ring = k.ring(f"{name}_ring", config.stages)
        self.full = k.barrier(f"{name}_full", arrivals=1, stages=config.stages)
        self.empty = k.barrier(
            f"{name}_empty", arrivals=readers or config.groups * config.cluster, stages=config.stages
        )

    @property
    def current(self) -> SharedBox:
        """The block that the ring points to."""
        return self.tile[self.ring]

    def load(self, item: Item, row: Index) -> None:
        """Wait for a free stage and start the copy of the block at `row`; CTAs of a cluster load a part each."""
        self.empty.wait(self.ring, flip=True)
        self.full.expect(self.ring, bytes=self.tile.stage_bytes)
        for col in range(0, self.tile.tile.cols, self.strip):
            box = self.current.part(col=col, cols=self.strip)
            source = self.source[item.kv_plane, row, col]
            self.k.tma_load(box, source, self.full[self.ring], multicast=self.config.cluster)
        self.ring.advance()

    def wait(self) -> None:
        """Wait for the block that the ring points to."""
        self.full.wait(self.ring)

    def release_when_read(self) -> None:
        """With early release: let the matrix unit give the block back once the products so far have read it."""
        if self.config.early_release:
            self.empty.arrive_after_reads(self.ring, cta=self.everyone)

    def release(self) -> None:
        """Give a block back to the producers that fill it, those of the whole cluster; go on to the next."""
        if not self.config.early_release:
            self.empty.arrive(self.ring, by="group", cta=self.everyone)
        self.ring.advance()


class Memory:
    """Q of a tile, blocks of K and of V, P where it is shared; O goes through the memory of V."""

    def __init__(
        self, k: Builder, problem: AttentionProblem, config: AttentionConfig, *, followed: bool = True
    ) -> None:
        """Declare all; `followed`: a CTA has more than one tile, so that the memory of V is used again after O."""
        self.k, self.config, self.d, self.followed = k, config, problem.head_dim, followed
        self.strip = min(STRIP_BYTES // problem.element_bytes, self.d)
        self.output_strip = min(STRIP_BYTES // dtype_bytes(problem.output_dtype), self.d)
        self.everyone: Cta = "all" if config.cluster > 1 else "own"
        layout, suffix = planes(problem, config), "_packed" if config.packed else ""
        queries = (layout.count, layout.rows, self.d)
        keys = (problem.batch * problem.heads_kv, problem.seqlen_kv, self.d)
        self.q_global = k.tensor(f"Q{suffix}", queries, problem.dtype)
        self.results(queries, problem, suffix)
        self.query = k.shared("q", (config.tile_m, self.d), problem.dtype)
        self.keys = Blocks(self, "k", k.tensor("K", keys, problem.dtype), problem.dtype)
        self.values = self._values(k.tensor("V", keys, problem.dtype), problem)
        if config.p_shared:
            self.weights = k.shared("p", (config.tile_m, config.tile_n), problem.dtype)
        self.producer_warps = TRANSPOSING_WARPS if transposes(problem) else 1
        self.tile = k.ring("tile", 1)
        self.query_full = k.barrier("q_full", arrivals=1)
        self.stored = k.barrier("o_stored", arrivals=config.cluster)

    def _values(self, source: GlobalHandle, problem: AttentionProblem) -> Blocks | TransposedBlocks:
        """Declare the blocks of V and, where they cannot hold O, memory for it; in release 1 O lies in V transposed."""
        if not transposes(problem):
            return Blocks(self, "v", source, problem.dtype)
        values = TransposedBlocks(self, Blocks(self, "v", source, problem.dtype, readers=self.config.cluster))
        self.stage(values, problem)
        return values

    def results(self, queries: tuple[int, int, int], problem: AttentionProblem, suffix: str) -> None:
        """Declare O, of planes, rows and columns as `queries` says."""
        self.o_global = self.k.tensor(f"O{suffix}", queries, problem.output_dtype, role="output")

    def stage(self, values: TransposedBlocks, problem: AttentionProblem) -> None:
        """Declare the memory that O passes through where V's cannot hold it."""
        under = values.tile if self.config.release == 1 else None
        self.staged = self.k.shared("o", (self.config.tile_m, self.d), problem.output_dtype, overlays=under)

    def first_key(self, item: Item) -> Index:
        """First row of K and V that a tile sees."""
        return Index()

    def meet(self) -> None:
        """Wait until every warp sees the barriers initialised."""
        if self.config.cluster > 1:
            self.k.cluster_sync()
        else:
            self.k.sync()

    def part(self) -> None:
        """Stay until no other CTA of the cluster signals this one any more."""
        if self.config.cluster > 1:
            self.k.cluster_sync()

    def load_query(self, item: Item) -> None:
        """Start the copy of this CTA's rows of Q."""
        self.query_full.expect(self.tile, bytes=self.query.stage_bytes)
        for col in range(0, self.d, self.strip):
            box = self.query[:].part(col=col, cols=self.strip)
            self.k.tma_load(box, self.q_global[item.q_plane, self._row(item), col], self.query_full[self.tile])

    def await_store(self) -> None:
        """Let the producer wait until the last tile's output has been stored."""
        if self.followed:
            self.stored.wait(self.tile, flip=True)

    def query_rows(self, group: int) -> SharedBox:
        """Return a group's rows of Q."""
        return self.query[:].part(row=group * GROUP_ROWS, rows=GROUP_ROWS)

    def weight_rows(self, group: int) -> SharedBox:
        """Return a group's rows of P in shared memory."""
        return self.weights[:].part(row=group * GROUP_ROWS, rows=GROUP_ROWS)

    def output_rows(self, group: int) -> SharedBox:
        """Return where a group's rows of O are staged: one group after the other in the stages of V."""
        if isinstance(self.values, TransposedBlocks):
            return self.staged[:].part(row=group * GROUP_ROWS, rows=GROUP_ROWS)
        stage, place = divmod(group, self.config.tile_n // GROUP_ROWS)
        return self.values.tile.stage(stage).part(row=place * GROUP_ROWS, rows=GROUP_ROWS)

    def start_store(self, item: Item) -> None:
        """Start the copies of O to global memory."""
        row, strip = self._row(item), self.output_strip
        for group in range(self.config.groups):
            for col in range(0, self.d, strip):
                box = self.output_rows(group).part(col=col, cols=strip)
                self.k.tma_store(self.o_global[item.q_plane, row + group * GROUP_ROWS, col], box)

    def end_store(self) -> None:
        """Wait until O has left shared memory, and tell the producers that V's memory is free again."""
        self.k.tma_store_wait(pending=0)
        self.stored.arrive(self.tile, by="role", cta=self.everyone)

    def _row(self, item: Item) -> Index:
        """First row of this CTA's tile; the CTAs of a cluster lie one above the other."""
        return item.row + self.k.cta_rank * self.config.tile_m if self.config.cluster > 1 else item.row
