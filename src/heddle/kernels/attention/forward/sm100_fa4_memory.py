"""Tensors, shared and tensor memory, rings and mbarriers of FlashAttention 4 on B200."""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.forward.sm100_fa4_config import ROWS
from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.lang import Builder, GlobalHandle, Index, Item, RegisterHandle

STRIP_BYTES = 128
"""A bulk copy with the 128-byte swizzle moves boxes of at most 128 bytes a row."""


class Tile:
    """A query tile of a CTA: its Q, scores (in `slots` places), P, output, row factors, and who waits for what.

    `scores_full`: S is there, and with it everything that the matrix warp issued before. `weights_full`: three quarters
    of P are written and O is rescaled. `weights_last`: the rest of P. `values_done` (of a single tile): the values of a
    block are added. `stats_full`: a row factor (or sum) is in shared memory (`pooled`: in registers that wefts share);
    `stats_empty`: it was read. `output_full`: O is complete; `staged`: it is in shared memory; `sent`: it has left it.
    `again`: another work item follows, for which Q is given back (`query_empty`).
    """

    def __init__(
        self, k: Builder, problem: AttentionProblem, keys: int, slots: int, index: int, pooled: bool, again: bool
    ) -> None:
        d, dtype = problem.head_dim, problem.dtype
        self.index = index
        self.query = k.shared(f"q{index}", (ROWS, d), dtype)
        self.factor = None if pooled else k.shared(f"factor{index}", (ROWS, 1), "fp32", swizzle_bytes=0)
        self.pooled_factor = k.pool(f"factor{index}", (ROWS, 1), "fp32")[0] if pooled else None
        self.scores = k.tensor_memory(f"s{index}", (ROWS, keys), "fp32", stages=slots)
        self.weights = k.tensor_memory(  # of 16-bit elements: the second half of the columns of S
            f"p{index}", (ROWS, keys), dtype, stages=slots, overlays=self.scores, overlay_col=keys // 2
        )
        self.output = k.tensor_memory(f"o{index}", (ROWS, d), "fp32")
        self.query_full = k.barrier(f"q{index}_full", arrivals=1)
        if again:
            self.query_empty = k.barrier(f"q{index}_empty", arrivals=1)
        self.scores_full = k.barrier(f"s{index}_full", arrivals=1, stages=slots)
        self.weights_full = k.barrier(f"p{index}_full", arrivals=2 * GROUP_WARPS, stages=slots)
        self.weights_last = k.barrier(f"p{index}_last", arrivals=GROUP_WARPS, stages=slots)
        if slots > 1:
            self.values_done = k.barrier(f"o{index}_done", arrivals=1)
        self.stats_full = k.barrier(f"stats{index}_full", arrivals=GROUP_WARPS)
        self.stats_empty = k.barrier(f"stats{index}_empty", arrivals=GROUP_WARPS)
        self.output_full = k.barrier(f"o{index}_full", arrivals=1)

    def stage(self, k: Builder, problem: AttentionProblem) -> None:
        """Declare shared memory for O on its way out."""
        index = self.index
        self.out = k.shared(f"out{index}", (ROWS, problem.head_dim), problem.output_dtype)
        self.staged = k.barrier(f"out{index}_staged", arrivals=GROUP_WARPS)
        self.sent = k.barrier(f"out{index}_sent", arrivals=1)


class Memory:
    """All memory of a CTA.

    `wefts`: the kernel is of mode fiber; `pooled`: row factors pass through registers that wefts share. Rings:
    `blocks` of K and V in turn; `step`: slots of scores, `ahead` the one that is computed next; `stats`, `item` and
    `values` have phases only. `early`: the next scores of a tile are made beside its softmax, in a slot of their own.
    `several`: a CTA may have several work items; what makes memory ready for the next one is left out where not.
    """

    several = True

    def __init__(
        self,
        k: Builder,
        problem: AttentionProblem,
        config: AttentionConfig,
        *,
        wefts: bool = False,
        pooled: bool = False,
    ) -> None:
        self.k, self.config, self.d, self.wefts = k, config, problem.head_dim, wefts
        self.strip = STRIP_BYTES // problem.element_bytes
        layout, suffix = planes(problem, config), "_packed" if config.packed else ""
        queries = (layout.count, layout.rows, self.d)
        keys = (problem.batch * problem.heads_kv, problem.seqlen_kv, self.d)
        self.q_global = k.tensor(f"Q{suffix}", queries, problem.dtype)
        self.results(queries, problem, suffix)
        self.k_global, self.v_global = (k.tensor(name, keys, problem.dtype) for name in ("K", "V"))
        self.early = self.has_early_scores()
        slots = 2 if self.early else 1
        self.tiles = tuple(
            Tile(k, problem, config.tile_n, slots, index, pooled, self.several) for index in range(config.groups)
        )
        for tile in self.tiles:
            self.stage(tile, problem)
        self.block = k.shared("kv", (config.tile_n, self.d), problem.dtype, stages=config.stages)
        self.blocks = k.ring("blocks", config.stages)
        self.full = k.barrier("kv_full", arrivals=1, stages=config.stages)
        self.empty = k.barrier("kv_empty", arrivals=1, stages=config.stages)
        self.step, self.stats, self.item = k.ring("step", slots), k.ring("stats", 1), k.ring("item_ring", 1)
        if self.early:
            self.ahead, self.values = k.ring("ahead", slots), k.ring("values", 1)

    def results(self, queries: tuple[int, int, int], problem: AttentionProblem, suffix: str) -> None:
        """Declare what the kernel writes."""
        self.o_global = self.k.tensor(f"O{suffix}", queries, problem.output_dtype, role="output")

    def has_early_scores(self) -> bool:
        """Whether a tile's next scores are made beside its softmax: where there is one tile."""
        return self.config.groups == 1

    def stage(self, tile: Tile, problem: AttentionProblem) -> None:
        """Declare where O of a tile waits for its copy."""
        tile.stage(self.k, problem)

    def meet(self) -> None:
        """Wait until all barriers are set up; wefts are spawned when they are."""
        if not self.wefts:
            self.k.sync()

    def put_factor(self, tile: Tile, column: RegisterHandle) -> None:
        """Row factors, or sums, on their way to the correction group."""
        if tile.factor is not None:
            self.k.store(tile.factor[:], column)
        else:
            assert tile.pooled_factor is not None
            self.k.elementwise("copy", tile.pooled_factor, column)

    def get_factor(self, tile: Tile, column: RegisterHandle) -> None:
        """The same in the correction group."""
        if tile.factor is not None:
            self.k.load(column, tile.factor[:])
        else:
            assert tile.pooled_factor is not None
            self.k.elementwise("copy", column, tile.pooled_factor)

    def load_query(self, tile: Tile, item: Item) -> None:
        """Start the copy of a tile of Q once the last one's scores are all computed."""
        if self.several:
            tile.query_empty.wait(self.item, flip=True)
        tile.query_full.expect(self.item, bytes=tile.query.stage_bytes)
        for col in range(0, self.d, self.strip):
            source = self.q_global[item.q_plane, item.row + tile.index * ROWS, col]
            self.k.tma_load(tile.query[:].part(col=col, cols=self.strip), source, tile.query_full[self.item])

    def load_block(self, source: GlobalHandle, item: Item, row: Index, *, unused: bool = False) -> None:
        """Start the copy of a block of K or V into the next stage; `unused`: nothing was in it."""
        if not unused:
            self.empty.wait(self.blocks, flip=True)
        self.full.expect(self.blocks, bytes=self.block.stage_bytes)
        for col in range(0, self.d, self.strip):
            box = self.block[self.blocks].part(col=col, cols=self.strip)
            self.k.tma_load(box, source[item.kv_plane, row, col], self.full[self.blocks])
        self.blocks.advance()

    def store_output(self, tile: Tile, item: Item) -> None:
        """Start the copies of a staged tile of O."""
        for col in range(0, self.d, self.strip):
            target = self.o_global[item.q_plane, item.row + tile.index * ROWS, col]
            self.k.tma_store(target, tile.out[:].part(col=col, cols=self.strip))
