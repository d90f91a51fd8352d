"""GEMM on B200: persistent; a load warp, a matrix warp, four epilogue warps, two accumulators in tensor memory.

With `cluster` 2 the two CTAs form a pair: each loads its rows of A and half of B's, the leader issues for both, and
each keeps the accumulators of its own rows. The epilogue of a tile runs beside the main loop of the next.
"""

from __future__ import annotations

from heddle.kernels.gemm.epilogue import Chunks, Output
from heddle.kernels.gemm.place import corner, k_start
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.lang import Builder, Cta, Item, kernel

EPILOGUE_WARPS = 4
"""One for each quarter of the 128 lanes of tensor memory."""
REGISTERS = 128
"""A thread of any role: the epilogue holds one chunk of columns; equal budgets need no setmaxnreg."""
ACC_STAGES = 2
STORE_BARRIER = 1


class Roles:
    """Two rings: stages of A and B from load to matrix warp, accumulators from matrix to epilogue warps."""

    def __init__(self, k: Builder, problem: GemmProblem, config: GemmConfig) -> None:
        self.k, self.config = k, config
        ctas, stages = config.cluster, config.stages
        self.owner: Cta = "leader" if ctas > 1 else "own"
        self.everyone: Cta = "all" if ctas > 1 else "own"
        self.a_global = k.tensor("A", (problem.m, problem.k), problem.dtype)
        self.b_global = k.tensor("B", (problem.n, problem.k), problem.dtype)
        self.output = Output(k, problem, config)
        self.b_rows = config.tile_n // ctas
        self.a = k.shared("a", (config.tile_m, config.tile_k), problem.dtype, stages=stages)
        self.b = k.shared("b", (self.b_rows, config.tile_k), problem.dtype, stages=stages)
        self.acc = k.tensor_memory("acc", (config.tile_m, config.tile_n), "fp32", stages=ACC_STAGES)
        self.part = k.registers("part", (config.tile_m, self.output.cols), "fp32", warps=(EPILOGUE_WARPS, 1))
        self.ring, self.acc_ring = k.ring("load", stages), k.ring("acc_ring", ACC_STAGES)
        self.full = k.barrier("full", arrivals=ctas, stages=stages)
        self.empty = k.barrier("empty", arrivals=1, stages=stages)
        self.acc_full = k.barrier("acc_full", arrivals=1, stages=ACC_STAGES)
        self.acc_empty = k.barrier("acc_empty", arrivals=EPILOGUE_WARPS * ctas, stages=ACC_STAGES)
        self.writer = self.output.writer("out", self.part, STORE_BARRIER, (EPILOGUE_WARPS, 1))

    def _read_accumulator(self) -> Chunks:
        """Load chunk by chunk; after the last one the matrix warp may overwrite the accumulator."""
        config, cols = self.config, self.output.cols
        for col in range(0, config.tile_n, cols):
            self.k.load(self.part, self.acc[self.acc_ring].columns(col, cols))
            if col + cols == config.tile_n:
                self.acc_empty.arrive(self.acc_ring, cta=self.owner)
            yield col, self.part

    def store(self, item: Item) -> None:
        """The epilogue of a tile."""
        self.writer.prepare(item)
        self.acc_full.wait(self.acc_ring)
        self.writer.store(self._read_accumulator(), item)
        self.acc_ring.advance()

    def load(self, item: Item) -> None:
        """Copy slices of A and B, as far ahead as the ring allows."""
        k, config, ring, full = self.k, self.config, self.ring, self.full
        for kb in k.range(item.k_blocks, name="kb"):
            at_k = k_start(item, config) + kb * config.tile_k
            self.empty.wait(ring, flip=True)
            full.expect(ring, bytes=self.a.stage_bytes + self.b.stage_bytes, cta=self.owner)
            landed = full.use(ring, cta=self.owner)
            k.tma_load(self.a[ring], self.a_global[corner(k, item, config)[0], at_k], landed)
            k.tma_load(self.b[ring], self.b_global[item.col + k.cta_rank * self.b_rows, at_k], landed)
            ring.advance()

    def multiply(self, item: Item) -> None:
        """Issue the products of a tile, for both CTAs of a pair."""
        k, ring, acc_ring = self.k, self.ring, self.acc_ring
        self.acc_empty.wait(acc_ring, flip=True)
        for kb in k.range(item.k_blocks, name="kb"):
            self.full.wait(ring)
            k.mma(self.acc[acc_ring], self.a[ring], self.b[ring], first=kb, ctas=self.config.cluster)
            k.mma_commit(self.empty.use(ring, cta=self.everyone))
            ring.advance()
        k.mma_commit(self.acc_full.use(acc_ring, cta=self.everyone))
        acc_ring.advance()


@kernel
def gemm_sm100(
    k: Builder, problem: GemmProblem, config: GemmConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """Persistent over the tiles of C."""
    k.flops, k.cluster_size = problem.flops, config.cluster
    k.work_items(items, clusters=clusters)
    roles = Roles(k, problem, config)
    meet = k.cluster_sync if config.cluster > 1 else k.sync

    with k.role("epilogue", warps=EPILOGUE_WARPS, registers=REGISTERS):
        meet()
        for item in k.work():
            roles.store(item)
        roles.writer.drain()
        meet()

    with k.role("load", warps=1, registers=REGISTERS):
        meet()
        for item in k.work():
            roles.load(item)
        meet()

    with k.role("mma", warps=1, registers=REGISTERS, leader_only=config.cluster > 1):
        meet()
        for item in k.work():
            roles.multiply(item)
        meet()
