"""Tensors, pool, shared and tensor memory of the FIBER-native attention of B200, and the roles that copy."""

from __future__ import annotations

from heddle.kernels.attention.fiber_blocks import STRIP_BYTES, Blocks
from heddle.kernels.attention.forward.sm100_fa4_config import ROWS
from heddle.kernels.attention.forward.sm100_fiber_config import GROUP, FiberConfig
from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Index, Item

OUTPUT_COLUMNS = 128
"""Columns of O that shared memory has room for."""


class Tile:
    """A query tile: its output O in tensor memory, and in the pool what passes between two roles.

    `query`: Q as fragments. `factor`: by what to rescale O. `sums`: of P's rows, by part. Tokens: `added`: a product
    into O has been issued; `ready`: O may be written by the next.
    """

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberConfig, index: int, rescaled: bool) -> None:
        d, dtype = problem.head_dim, problem.dtype
        self.index = index
        self.output = k.tensor_memory(f"o{index}", (ROWS, d), "fp32")
        self.query = k.pool(f"query{index}_", (ROWS, d), dtype)[0]
        self.sums = [k.pool(f"sum{p}_{index}", (ROWS, 1), "fp32")[0] for p in range(config.parts)]
        self.factor = k.pool(f"factor{index}", (ROWS, 1), "fp32")[0] if rescaled else None
        self.added, self.ready = k.token(f"added{index}"), k.token(f"ready{index}")
        self.query_shared = k.shared(f"q{index}", (ROWS, d), dtype)
        self.query_full = k.barrier(f"q{index}_full", arrivals=1)
        self.query_empty = k.barrier(f"q{index}_empty", arrivals=GROUP)


class Lane:
    """Scores S of one tile with one block of keys in tensor memory, and weights P in the pool, by part.

    The lanes of a step take turns. Two tiles have a lane each, with the same keys; a single tile has two, whose keys
    lie one behind the other. `keys_at`: first key in the step. `takes`, `ends`: it is the first, the last with its
    block of K and V. `issued`: a token to each part, after the last product of S. `peaks`: the maxima of the parts.
    """

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberConfig, index: int, tile: Tile) -> None:
        parts, own_keys = range(config.parts), config.lanes > config.groups
        self.index, self.tile, self.width = index, tile, config.keys // config.parts
        self.keys_at = index * config.keys if own_keys else 0
        self.takes, self.ends = own_keys or index == 0, own_keys or index == config.lanes - 1
        self.scores = k.tensor_memory(f"s{index}", (ROWS, config.keys), "fp32")
        self.weights = [k.pool(f"weights{index}_{p}", (ROWS, self.width), problem.dtype)[0] for p in parts]
        self.issued = [k.token(f"issued{p}_{index}") for p in parts]
        self.peaks = [k.pool(f"peak{p}_{index}", (ROWS, 1), "fp32")[0] for p in parts] if config.parts > 1 else []


class Memory:
    """All memory of a FIBER-thread."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberConfig, more: bool) -> None:
        self.k, self.config, self.d, self.dtype = k, config, problem.head_dim, problem.dtype
        self.strip = STRIP_BYTES // problem.element_bytes
        layout, suffix = planes(problem, config), "_packed" if config.packed else ""
        queries = (layout.count, layout.rows, self.d)
        keys = (problem.batch * problem.heads_kv, problem.seqlen_kv, self.d)
        self.q_global = k.tensor(f"Q{suffix}", queries, problem.dtype)
        self.o_global = k.tensor(f"O{suffix}", queries, problem.output_dtype, role="output")
        rescaled = more or config.lanes > config.groups
        self.tiles = tuple(Tile(k, problem, config, index, rescaled) for index in range(config.groups))
        owners = [self.tiles[index % config.groups] for index in range(config.lanes)]
        self.lanes = tuple(Lane(k, problem, config, index, tile) for index, tile in enumerate(owners))
        sizes = {"keys": config.keys, "stages": config.stages, "readers": GROUP}
        self.keys = Blocks(k, "k", k.tensor("K", keys, problem.dtype), **sizes)
        self.values = Blocks(k, "v", k.tensor("V", keys, problem.dtype), **sizes)
        self.item = k.ring("item_ring", 1)
        self.output = k.shared("out", (ROWS, min(self.d, OUTPUT_COLUMNS)), problem.output_dtype)
        self.output_ring = k.ring("out_ring", 1)
        self.output_full = k.barrier("out_full", arrivals=GROUP)
        self.output_empty = k.barrier("out_empty", arrivals=1)

    def lanes_of(self, tile: Tile) -> list[Lane]:
        """The lanes of a tile, in turn."""
        return [lane for lane in self.lanes if lane.tile is tile]

    def load(self, item: Item, more: bool) -> None:
        """Q of all tiles, and K one step ahead of V, from the last keys that the tiles see to the first."""
        k, tile_n = self.k, self.config.tile_n
        for tile in self.tiles:
            self._load_query(tile, item)
        self.item.advance()
        self._load_step(self.keys, item, item.last)
        if more:
            with k.when(item.more):
                for block in k.range(item.more, name="block"):
                    for lane in self.lanes:
                        if lane.takes:
                            row = item.last + block * -tile_n + lane.keys_at
                            self.keys.load(item, row - tile_n)
                            self.values.load(item, row)
        self._load_step(self.values, item, Index())

    def _load_step(self, blocks: Blocks, item: Item, row: Index) -> None:
        for lane in self.lanes:
            if lane.takes:
                blocks.load(item, row + lane.keys_at)

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
        """O of one tile after the other, as many columns at a time as are staged, to global memory."""
        for tile in self.tiles:
            for first in range(0, self.d, OUTPUT_COLUMNS):
                self.output_full.wait(self.output_ring)
                for col in range(0, min(self.d, OUTPUT_COLUMNS), self.strip):
                    target = self.o_global[item.q_plane, item.row + tile.index * ROWS, first + col]
                    self.k.tma_store(target, self.output[:].part(col=col, cols=self.strip))
                self.k.tma_store_wait(pending=0)
                self.output_empty.arrive(self.output_ring)
                self.output_ring.advance()
