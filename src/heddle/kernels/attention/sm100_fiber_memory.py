"""Tensors, pool, shared and tensor memory of the FIBER-native attention of B200, and the roles that copy."""

from __future__ import annotations

from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.sm100_fa4_config import ROWS
from heddle.kernels.attention.sm100_fiber_config import GROUP, FiberConfig
from heddle.lang import Builder, GlobalHandle, Index, Item, RegisterHandle, SharedBox

STRIP_BYTES = 128
"""A bulk copy with the 128-byte swizzle moves boxes of at most 128 bytes a row."""


class Blocks:
    """K or V: `stages` blocks in shared memory, filled by the loading weft, given back by those that multiply."""

    def __init__(self, memory: Memory, name: str, source: GlobalHandle) -> None:
        k, config = memory.k, memory.config
        self.k, self.source, self.strip = k, source, memory.strip
        self.tile = k.shared(name, (config.tile_n, memory.d), memory.dtype, stages=config.stages)
        self.ring = k.ring(f"{name}_ring", config.stages)
        self.full = k.barrier(f"{name}_full", arrivals=1, stages=config.stages)
        self.empty = k.barrier(f"{name}_empty", arrivals=GROUP, stages=config.stages)

    @property
    def current(self) -> SharedBox:
        """The block that the ring points to."""
        return self.tile[self.ring]

    def load(self, item: Item, row: Index) -> None:
        """Wait for a free stage and start the copy of the block at `row`."""
        self.empty.wait(self.ring, flip=True)
        self.full.expect(self.ring, bytes=self.tile.stage_bytes)
        for col in range(0, self.tile.tile.cols, self.strip):
            box, source = self.current.part(col=col, cols=self.strip), self.source[item.kv_plane, row, col]
            self.k.tma_load(box, source, self.full[self.ring])
        self.ring.advance()

    def wait(self) -> None:
        """Wait for the block that the ring points to."""
        self.full.wait(self.ring)

    def release(self, read: RegisterHandle) -> None:
        """Give back the block before the one that the ring points to; the last product with it has operand `read`."""
        self.empty.arrive(self.ring.previous, read=read)


class Tile:
    """A query tile. In tensor memory: scores S and output O. In the pool, all of them between two roles:

    `query`: Q as fragments. `weights`: P as fragments, by part. `factor`: by what to rescale O. `sums`: of P's rows, by
    part. `peaks`: the maxima of the parts, for the other part. Tokens: `issued`: the last product of S has been issued
    (to each part); `added`: a product into O has been issued; `ready`: O may be written by the next.
    """

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberConfig, index: int) -> None:
        d, dtype, parts = problem.head_dim, problem.dtype, range(config.parts)

        def column(name: str) -> RegisterHandle:
            return k.pool(f"{name}{index}", (ROWS, 1), "fp32")[0]

        self.index, self.width = index, config.tile_n // config.parts
        self.scores = k.tensor_memory(f"s{index}", (ROWS, config.tile_n), "fp32")
        self.output = k.tensor_memory(f"o{index}", (ROWS, d), "fp32")
        self.query = k.pool(f"query{index}_", (ROWS, d), dtype)[0]
        self.weights = [k.pool(f"weights{index}_{p}", (ROWS, self.width), dtype)[0] for p in parts]
        self.sums = [column(f"sum{p}_") for p in parts]
        self.peaks = [column(f"peak{p}_") for p in parts] if config.parts > 1 else []
        self.factor = column("factor")
        self.issued = [k.token(f"issued{p}_{index}") for p in parts]
        self.added, self.ready = k.token(f"added{index}"), k.token(f"ready{index}")
        self.query_shared = k.shared(f"q{index}", (ROWS, d), dtype)
        self.query_full = k.barrier(f"q{index}_full", arrivals=1)
        self.query_empty = k.barrier(f"q{index}_empty", arrivals=GROUP)


class Memory:
    """All memory of a FIBER-thread."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberConfig) -> None:
        self.k, self.config, self.d, self.dtype = k, config, problem.head_dim, problem.dtype
        self.strip = STRIP_BYTES // problem.element_bytes
        layout, suffix = planes(problem, config), "_packed" if config.packed else ""
        queries = (layout.count, layout.rows, self.d)
        keys = (problem.batch * problem.heads_kv, problem.seqlen_kv, self.d)
        self.q_global = k.tensor(f"Q{suffix}", queries, problem.dtype)
        self.o_global = k.tensor(f"O{suffix}", queries, problem.output_dtype, role="output")
        self.tiles = tuple(Tile(k, problem, config, index) for index in range(config.groups))
        self.keys = Blocks(self, "k", k.tensor("K", keys, problem.dtype))
        self.values = Blocks(self, "v", k.tensor("V", keys, problem.dtype))
        self.item = k.ring("item_ring", 1)
        self.output = k.shared("out", (ROWS, self.d), problem.output_dtype)
        self.output_ring = k.ring("out_ring", 1)
        self.output_full = k.barrier("out_full", arrivals=GROUP)
        self.output_empty = k.barrier("out_empty", arrivals=1)

    def load(self, item: Item, more: bool) -> None:
        """Q of both tiles, and K one block ahead of V, from the last block that the tiles see to the first."""
        k, tile_n = self.k, self.config.tile_n
        for tile in self.tiles:
            self._load_query(tile, item)
        self.item.advance()
        self.keys.load(item, item.last)
        if more:
            with k.when(item.more):
                for block in k.range(item.more, name="block"):
                    self.keys.load(item, item.last - tile_n + block * -tile_n)
                    self.values.load(item, item.last + block * -tile_n)
        self.values.load(item, Index())

    def _load_query(self, tile: Tile, item: Item) -> None:
        tile.query_empty.wait(self.item, flip=True)
        tile.query_full.expect(self.item, bytes=tile.query_shared.stage_bytes)
        for col in range(0, self.d, self.strip):
            source = self.q_global[item.q_plane, item.row + tile.index * ROWS, col]
            self.k.tma_load(tile.query_shared[:].part(col=col, cols=self.strip), source, tile.query_full[self.item])

    def fragments(self, tile: Tile) -> None:
        """A tile of Q from shared memory to the pool, once its last product with the one before has read that."""
        k = self.k
        tile.query_full.wait(self.item)
        k.load(tile.query, tile.query_shared[:])
        k.set_busy_bit(tile.query, "full")
        tile.query_empty.arrive(self.item)
        self.item.advance()

    def store(self, item: Item) -> None:
        """O of one tile after the other to global memory."""
        for tile in self.tiles:
            self.output_full.wait(self.output_ring)
            for col in range(0, self.d, self.strip):
                target = self.o_global[item.q_plane, item.row + tile.index * ROWS, col]
                self.k.tma_store(target, self.output[:].part(col=col, cols=self.strip))
            self.k.tma_store_wait(pending=0)
            self.output_empty.arrive(self.output_ring)
            self.output_ring.advance()
