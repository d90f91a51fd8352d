"""Tensors, shared memory and mbarriers of the FIBER-native backward pass on H100, and the roles that copy."""

from __future__ import annotations

from heddle.kernels.attention.backward.sm90_fiber_config import GRADIENT_STAGES, FiberBackward90Config, dq_shape
from heddle.kernels.attention.backward.tensors import GradientTensors
from heddle.kernels.attention.fiber_blocks import Blocks
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, GlobalHandle, Index, Item, RegisterHandle

GROUP = 4
"""Wefts of a role that computes, one a subpartition."""


class StatisticBlocks(Blocks):
    """Q or dO in stages, with one statistic a row."""

    def __init__(
        self,
        k: Builder,
        name: str,
        source: GlobalHandle,
        statistic: GlobalHandle,
        *,
        rows: int,
        stages: int,
        readers: int,
    ) -> None:
        super().__init__(k, name, source, keys=rows, stages=stages, readers=readers)
        self.statistic_source = statistic
        self.statistics = k.shared(f"{name}_statistic", (1, rows), "fp32", stages=stages, swizzle_bytes=0)

    def load(self, item: Item, row: Index) -> None:
        """Wait for a free stage and start the copies of the block at `row`."""
        ring = self.ring
        self.empty.wait(ring, flip=True)
        self.full.expect(ring, bytes=self.tile.stage_bytes + self.statistics.stage_bytes)
        for col in range(0, self.tile.tile.cols, self.strip):
            box, source = self.current.part(col=col, cols=self.strip), self.source[item.q_plane, row, col]
            self.k.tma_load(box, source, self.full[ring])
        self.k.tma_load(self.statistics[ring], self.statistic_source[item.q_plane, 0, row], self.full[ring])
        ring.advance()


class Memory:
    """K and V of the FIBER-thread's keys, blocks of Q, dO and dS, and parts of dQ on their way out."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberBackward90Config) -> None:
        self.k, self.problem, self.config = k, problem, config
        self.tensors = tensors = GradientTensors(k, problem)
        rows = {"rows": config.tile_m, "stages": config.stages}
        self.keys = Blocks(k, "k", tensors.k, keys=config.tile_n, stages=config.key_stages, readers=2 * GROUP)
        self.values = Blocks(k, "v", tensors.v, keys=config.tile_n, stages=1, readers=GROUP)
        loading = int(config.statistics != "role")
        # read by the roles that load statistics and that make P and dS, and by the wefts that make dK or dV
        self.queries = StatisticBlocks(k, "q", tensors.q, tensors.lse, readers=(2 + loading) * GROUP, **rows)
        readers = (1 + loading + config.slots) * GROUP
        self.outputs = StatisticBlocks(k, "do", tensors.do, tensors.dpsum, readers=readers, **rows)
        self.gradient = k.shared("ds", (config.tile_m, config.tile_n), problem.dtype, stages=GRADIENT_STAGES)
        self.gradient_ring = k.ring("ds_ring", GRADIENT_STAGES)
        self.gradient_full = k.barrier("ds_full", arrivals=GROUP, stages=GRADIENT_STAGES)
        self.gradient_empty = k.barrier("ds_empty", arrivals=GROUP, stages=GRADIENT_STAGES)
        self.dq_shape = dq_shape(problem, config)
        if config.dq == "bulk":
            self.partial = k.shared("dq", self.dq_shape, "fp32", stages=config.parts, swizzle_bytes=0)
            self.partial_ring = k.ring("dq_ring", config.parts)
            self.partial_full = k.barrier("dq_full", arrivals=GROUP, stages=config.parts)
            self.partial_empty = k.barrier("dq_empty", arrivals=1, stages=config.parts)

    def load(self, item: Item, more: bool) -> None:
        """Q, K and V, then dO of a block before Q of the next."""
        step = self.config.tile_m
        self.queries.load(item, item.first + 0)
        self.keys.load(item, item.key + 0)
        self.values.load(item, item.key + 0)
        if more:
            with self.k.when(item.more):
                for block in self.k.range(item.more, name="loaded"):
                    self.outputs.load(item, item.first + block * step)
                    self.queries.load(item, item.first + step + block * step)
        self.outputs.load(item, item.last + 0)

    def dq_target(self, item: Item, block: Index, part: int) -> tuple[Index, int]:
        """Return row and column of a part of dQ of a block of queries."""
        rows, cols = self.dq_shape
        down, right = (part * rows, 0) if rows < self.config.tile_m else (0, part * cols)
        return item.first + down + block * self.config.tile_m, right

    def put_partial(self, part: RegisterHandle) -> None:
        """A part of dQ on its way out, once its place is free."""
        ring = self.partial_ring
        self.partial_empty.wait(ring, flip=True)
        self.k.store(self.partial[ring], part, thread_order=True)
        self.k.fence()
        self.partial_full.arrive(ring)
        ring.advance()

    def add(self, item: Item) -> None:
        """Add all parts of dQ to global memory by bulk copies, and give their places back when they have been read."""
        k, ring = self.k, self.partial_ring
        for block in k.range(item.blocks, name="added"):
            for part in range(self.config.parts):
                self.partial_full.wait(ring)
                row, col = self.dq_target(item, block, part)
                k.tma_store(self.tensors.dq[item.q_plane, row, col], self.partial[ring], reduce=True)
                k.tma_store_wait(pending=0)
                self.partial_empty.arrive(ring)
                ring.advance()
