"""GEMM on B200: persistent; a load warp, a matrix warp, four epilogue warps, two accumulators in tensor memory.

With `cluster` 2 the two CTAs form a pair: each loads its rows of A and half of B's, the leader issues for both, and
each keeps the accumulators of its own rows. The epilogue of a tile runs beside the main loop of the next.
"""

from __future__ import annotations

from heddle.kernels.gemm.epilogue import Chunks, Output
from heddle.kernels.gemm.place import corner, k_start
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.lang import Builder, Cta, kernel

EPILOGUE_WARPS = 4
"""One for each quarter of the 128 lanes of tensor memory."""
REGISTERS = 128
"""A thread of any role: the epilogue holds one chunk of columns; equal budgets need no setmaxnreg."""
ACC_STAGES = 2
STORE_BARRIER = 1


@kernel
def gemm_sm100(
    k: Builder, problem: GemmProblem, config: GemmConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """Two rings: stages of A and B from load to matrix warp, accumulators from matrix to epilogue warps."""
    k.flops, k.cluster_size = problem.flops, config.cluster
    k.work_items(items, clusters=clusters)
    ctas, stages = config.cluster, config.stages
    owner: Cta = "leader" if ctas > 1 else "own"
    everyone: Cta = "all" if ctas > 1 else "own"
    a_global = k.tensor("A", (problem.m, problem.k), problem.dtype)
    b_global = k.tensor("B", (problem.n, problem.k), problem.dtype)
    output = Output(k, problem, config)
    b_rows = config.tile_n // ctas
    a = k.shared("a", (config.tile_m, config.tile_k), problem.dtype, stages=stages)
    b = k.shared("b", (b_rows, config.tile_k), problem.dtype, stages=stages)
    acc = k.tensor_memory("acc", (config.tile_m, config.tile_n), "fp32", stages=ACC_STAGES)
    part = k.registers("part", (config.tile_m, output.cols), "fp32", warps=(EPILOGUE_WARPS, 1))
    ring, acc_ring = k.ring("load", stages), k.ring("acc_ring", ACC_STAGES)
    full = k.barrier("full", arrivals=ctas, stages=stages)
    empty = k.barrier("empty", arrivals=1, stages=stages)
    acc_full = k.barrier("acc_full", arrivals=1, stages=ACC_STAGES)
    acc_empty = k.barrier("acc_empty", arrivals=EPILOGUE_WARPS * ctas, stages=ACC_STAGES)
    writer = output.writer("out", part, STORE_BARRIER, (EPILOGUE_WARPS, 1))
    meet = k.cluster_sync if ctas > 1 else k.sync

    def read_accumulator() -> Chunks:
        """Load chunk by chunk; after the last one the matrix warp may overwrite the accumulator."""
        for col in range(0, config.tile_n, output.cols):
            k.load(part, acc[acc_ring].columns(col, output.cols))
            if col + output.cols == config.tile_n:
                acc_empty.arrive(acc_ring, cta=owner)
            yield col, part

    with k.role("epilogue", warps=EPILOGUE_WARPS, registers=REGISTERS):
        meet()
        for item in k.work():
            writer.prepare(item)
            acc_full.wait(acc_ring)
            writer.store(read_accumulator(), item)
            acc_ring.advance()
        writer.drain()
        meet()

    with k.role("load", warps=1, registers=REGISTERS):
        meet()
        for item in k.work():
            for kb in k.range(item.k_blocks, name="kb"):
                at_k = k_start(item, config) + kb * config.tile_k
                empty.wait(ring, flip=True)
                full.expect(ring, bytes=a.stage_bytes + b.stage_bytes, cta=owner)
                k.tma_load(a[ring], a_global[corner(k, item, config)[0], at_k], full.use(ring, cta=owner))
                k.tma_load(b[ring], b_global[item.col + k.cta_rank * b_rows, at_k], full.use(ring, cta=owner))
                ring.advance()
        meet()

    with k.role("mma", warps=1, registers=REGISTERS, leader_only=ctas > 1):
        meet()
        for item in k.work():
            acc_empty.wait(acc_ring, flip=True)
            for kb in k.range(item.k_blocks, name="kb"):
                full.wait(ring)
                k.mma(acc[acc_ring], a[ring], b[ring], first=kb, ctas=ctas)
                k.mma_commit(empty.use(ring, cta=everyone))
                ring.advance()
            k.mma_commit(acc_full.use(acc_ring, cta=everyone))
            acc_ring.advance()
        meet()
