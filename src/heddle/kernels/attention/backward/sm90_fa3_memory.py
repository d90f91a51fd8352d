"""Tensors, shared memory and mbarriers of the backward pass of FlashAttention 3, and the copies between them."""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.backward.sm90_fa3_config import (
    GROUP_ROWS,
    GROUPS,
    STAGES,
    Fa3BackwardConfig,
    statistic_cols,
)
from heddle.kernels.attention.backward.tensors import GradientTensors
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, GlobalHandle, Index, Item, RingPosition, SharedBox

STRIP_BYTES = 128
"""A bulk copy with the 128-byte swizzle moves boxes of at most 128 bytes a row."""


class QueryBlocks:
    """Q or dO with a row statistic: stages in shared memory, filled by the producer, given back by both groups."""

    def __init__(
        self, memory: Memory, name: str, source: GlobalHandle, statistic: str, statistic_source: GlobalHandle
    ) -> None:
        k, config = memory.k, memory.config
        self.k, self.config, self.memory = k, config, memory
        self.source, self.statistic_source = source, statistic_source
        self.tile = k.shared(name, (config.tile_m, memory.d), memory.problem.dtype, stages=STAGES)
        self.statistics = k.shared(
            statistic, (1, statistic_cols(config.tile_m)), "fp32", stages=STAGES, swizzle_bytes=0
        )
        self.full = k.barrier(f"{name}_full", arrivals=1, stages=STAGES)
        readers = GROUPS * (GROUP_WARPS if config.release == 1 else 1)
        self.empty = k.barrier(f"{name}_empty", arrivals=readers, stages=STAGES)

    def rows(self, ring: RingPosition) -> SharedBox:
        """The block of a stage."""
        return self.tile[ring]

    def statistic(self, ring: RingPosition) -> SharedBox:
        """The row statistic of a stage, one element a query."""
        return self.statistics[ring].part(cols=self.config.tile_m)

    def load(self, item: Item, row: Index) -> None:
        """Wait for a free stage and start the copies of the block at `row`."""
        ring, statistic = self.memory.ring, self.statistic(self.memory.ring)
        self.empty.wait(ring, flip=True)
        statistic_bytes = self.statistics.stage_bytes * self.config.tile_m // self.statistics.tile.cols
        self.full.expect(ring, bytes=self.tile.stage_bytes + statistic_bytes)
        for col in range(0, self.memory.d, self.memory.strip):
            box = self.rows(ring).part(col=col, cols=self.memory.strip)
            self.k.tma_load(box, self.source[item.q_plane, row, col], self.full[ring])
        self.k.tma_load(statistic, self.statistic_source[item.q_plane, 0, row], self.full[ring])


class Memory:
    """K and V of the CTA's keys, blocks of Q, dO and dS, and the block of dQ that each warp group hands over.

    `wefts`: the kernel is of mode fiber.
    """

    def __init__(
        self, k: Builder, problem: AttentionProblem, config: Fa3BackwardConfig, *, wefts: bool = False
    ) -> None:
        self.k, self.problem, self.config, self.d = k, problem, config, problem.head_dim
        self.wefts = wefts
        self.strip = min(STRIP_BYTES // problem.element_bytes, self.d)
        self.tensors = GradientTensors(k, problem)
        # stage 0 is K and stage 1 V; dK and dV leave through the same memory
        self.pair = k.shared("kv", (config.tile_n, self.d), problem.dtype, stages=2)
        self.pair_full = k.barrier("kv_full", arrivals=1)
        self.ring = k.ring("block", STAGES)
        self.queries = QueryBlocks(self, "q", self.tensors.q, "lse", self.tensors.lse)
        self.outputs = QueryBlocks(self, "do", self.tensors.do, "dpsum", self.tensors.dpsum)
        self.scores = k.shared("ds", (config.tile_m, config.tile_n), problem.dtype, stages=STAGES)
        self.rows = config.tile_m // (GROUPS if config.dq == "rows" else 1)
        self.cols = self.d // (1 if config.dq == "rows" else GROUPS)
        self.partial = [
            k.shared(f"dq{group}", (self.rows, self.cols), "fp32", swizzle_bytes=0) for group in range(GROUPS)
        ]
        if self.tensors.shared_heads:
            # of dK or dV in fp32 each stage holds half of the columns
            self.staged = k.shared(
                "dkv", (config.tile_n, self.d // 2), "fp32", stages=2, swizzle_bytes=0, overlays=self.pair
            )

    def meet(self) -> None:
        """Wait until all barriers are set up; wefts are spawned when they are."""
        if not self.wefts:
            self.k.sync()

    def keys(self) -> SharedBox:
        """K of the CTA."""
        return self.pair.stage(0)

    def values(self) -> SharedBox:
        """V of the CTA."""
        return self.pair.stage(1)

    def key_columns(self, group: int) -> SharedBox:
        """The columns of K that give a group's columns of dQ."""
        return self.keys() if self.config.dq == "rows" else self.keys().part(col=group * self.cols, cols=self.cols)

    def load_pair(self, item: Item) -> None:
        """Start the copies of K and V."""
        self.pair_full.expect(bytes=2 * self.pair.stage_bytes)
        for box, source in ((self.keys(), self.tensors.k), (self.values(), self.tensors.v)):
            for col in range(0, self.d, self.strip):
                part = box.part(col=col, cols=self.strip)
                self.k.tma_load(part, source[item.kv_plane, item.key, col], self.pair_full[:])

    def add_partial(self, item: Item, group: int, row: Index) -> None:
        """Start the addition of a group's part of dQ of the block at `row` to global memory."""
        down, right = (group * self.rows, 0) if self.config.dq == "rows" else (0, group * self.cols)
        target = self.tensors.dq[item.q_plane, row + down, right]
        self.k.tma_store(target, self.partial[group][:], reduce=True)

    def store_gradients(self, item: Item) -> None:
        """Start the copies of dV and dK, rounded, to global memory."""
        for stage, target in ((1, self.tensors.dv), (0, self.tensors.dk)):
            for col in range(0, self.d, self.strip):
                box = self.pair.stage(stage).part(col=col, cols=self.strip)
                self.k.tma_store(target[item.kv_plane, item.key, col], box)

    def add_gradient(self, item: Item, target: GlobalHandle) -> None:
        """Start the addition of what is staged, dV or dK in fp32, to global memory."""
        for half in range(2):
            col = half * self.staged.tile.cols
            self.k.tma_store(target[item.kv_plane, item.key, col], self.staged.stage(half), reduce=True)

    def staged_rows(self, group: int, half: int) -> SharedBox:
        """Where a group stages half of the columns of its rows of dV or dK in fp32."""
        return self.staged.stage(half).part(row=group * GROUP_ROWS, rows=GROUP_ROWS)
