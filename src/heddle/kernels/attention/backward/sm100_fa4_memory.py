"""Tensors, shared and tensor memory, rings and mbarriers of the backward pass of FlashAttention 4, and its copies."""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.backward.sm100_fa4_config import (
    ADDED_STAGES,
    GROUPS,
    OUTPUT_STAGES,
    PART,
    QUERY_STAGES,
    ROWS,
    staged_bytes,
    staged_columns,
)
from heddle.kernels.attention.backward.tensors import GradientTensors
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, GlobalHandle, Index, Item, Ring, SharedBox, SharedHandle

STRIP_BYTES = 128
"""A bulk copy with the 128-byte swizzle moves boxes of at most 128 bytes a row."""
COMPUTE_WARPS = GROUPS * GROUP_WARPS


class QueryBlocks:
    """Q or dO, which the matrix warp reads, and a row statistic, which the warps that compute read: a ring of stages.

    `full`, `empty`: of the block; `known`, `used`: of the statistic.
    """

    def __init__(
        self,
        memory: Memory,
        names: tuple[str, str],
        sources: tuple[GlobalHandle, GlobalHandle],
        stages: int,
    ) -> None:
        k, (name, statistic) = memory.k, names
        self.memory, self.sources = memory, sources
        self.ring: Ring = k.ring(f"{name}_ring", stages)
        self.tile = k.shared(name, (ROWS, memory.d), memory.problem.dtype, stages=stages)
        self.statistics = k.shared(statistic, (1, ROWS), "fp32", stages=stages, swizzle_bytes=0)
        self.full = k.barrier(f"{name}_full", arrivals=1, stages=stages)
        self.empty = k.barrier(f"{name}_empty", arrivals=1, stages=stages)
        self.known = k.barrier(f"{statistic}_full", arrivals=1, stages=stages)
        self.used = k.barrier(f"{statistic}_empty", arrivals=COMPUTE_WARPS, stages=stages)

    def load(self, item: Item, row: Index, beside: tuple[SharedHandle, GlobalHandle] | None = None) -> None:
        """Start the copies of the block at `row` and of its statistic when their places are free.

        `beside`: K or V and where it comes from; its copy is waited for with that of the block.
        """
        k, ring, memory = self.memory.k, self.ring, self.memory
        self.empty.wait(ring, flip=True)
        self.full.expect(ring, bytes=self.tile.stage_bytes + (beside[0].stage_bytes if beside else 0))
        if beside:
            for col in range(0, memory.d, memory.strip):
                box = beside[0][:].part(col=col, cols=memory.strip)
                k.tma_load(box, beside[1][item.kv_plane, item.key, col], self.full[ring])
        for col in range(0, memory.d, memory.strip):
            box = self.tile[ring].part(col=col, cols=memory.strip)
            k.tma_load(box, self.sources[0][item.q_plane, row, col], self.full[ring])
        self.used.wait(ring, flip=True)
        self.known.expect(ring, bytes=self.statistics.stage_bytes)
        k.tma_load(self.statistics[ring], self.sources[1][item.q_plane, 0, row], self.known[ring])
        ring.advance()


class Memory:
    """All memory of a CTA.

    Tensor memory: S^T with P^T in its first columns; dP^T with dS^T in its first columns, and dQ over both; dK and dV.
    Barriers: `scores_full`, `weights_full` (P), `gradient_full` (dP), `change_full`, `change_empty` (dS, in tensor and
    shared memory), `dq_full`, `dq_empty` (of a block); `dk_full`, `dv_full`. The rings have phases only: `step` of a
    block, `behind` of the block whose dK and dQ come one block later.
    `wefts`: the kernel is of mode fiber.
    """

    def __init__(self, k: Builder, problem: AttentionProblem, *, wefts: bool = False) -> None:
        self.k, self.problem, self.wefts, self.d, dtype = k, problem, wefts, problem.head_dim, problem.dtype
        self.strip = min(STRIP_BYTES // problem.element_bytes, self.d)
        self.tensors = GradientTensors(k, problem)
        self.keys, self.values = (k.shared(name, (ROWS, self.d), dtype) for name in ("k", "v"))
        self.queries = QueryBlocks(self, ("q", "lse"), (self.tensors.q, self.tensors.lse), QUERY_STAGES)
        self.outputs = QueryBlocks(self, ("do", "dpsum"), (self.tensors.do, self.tensors.dpsum), OUTPUT_STAGES)
        self.change = k.shared("ds", (ROWS, ROWS), dtype)
        self.added = k.shared("dq_parts", (ROWS, PART), "fp32", stages=ADDED_STAGES, swizzle_bytes=0)
        self._tensor_memory()
        self._staged()
        self.step, self.behind = k.ring("step", 1), k.ring("behind", 1)

        self.scores_full, self.gradient_full = k.barrier("s_full", arrivals=1), k.barrier("dp_full", arrivals=1)
        self.weights_full = k.barrier("p_full", arrivals=COMPUTE_WARPS)
        self.change_full = k.barrier("ds_full", arrivals=COMPUTE_WARPS)
        self.change_empty = k.barrier("ds_empty", arrivals=1)
        self.dq_full = k.barrier("dq_full", arrivals=1)
        self.dq_empty = k.barrier("dq_empty", arrivals=GROUP_WARPS)
        self.dk_full, self.dv_full = k.barrier("dk_full", arrivals=1), k.barrier("dv_full", arrivals=1)

    def _tensor_memory(self) -> None:
        k, dtype = self.k, self.problem.dtype
        self.tm_scores = k.tensor_memory("s", (ROWS, ROWS), "fp32")
        self.tm_weights = k.tensor_memory("p", (ROWS, ROWS), dtype, overlays=self.tm_scores)
        self.tm_gradient = k.tensor_memory("dp", (ROWS, ROWS), "fp32")
        self.tm_change = k.tensor_memory("ds_t", (ROWS, ROWS), dtype, overlays=self.tm_gradient)
        self.tm_dq = k.tensor_memory("dq", (ROWS, self.d), "fp32", overlays=self.tm_gradient)
        self.tm_dk = k.tensor_memory("dk", (ROWS, self.d), "fp32")
        self.tm_dv = k.tensor_memory("dv", (ROWS, self.d), "fp32")

    def _staged(self) -> None:
        """Where dK and dV leave, the groups side by side: the memory of Q and of dO, if that is large enough."""
        k, shared = self.k, self.tensors.shared_heads
        shape, dtype = (ROWS, GROUPS * staged_columns(self.problem)), "fp32" if shared else self.problem.dtype
        swizzle = 0 if shared else STRIP_BYTES

        def place(name: str, under: SharedHandle) -> SharedHandle:
            overlays = under if staged_bytes(self.problem) <= under.stage_bytes else None
            return k.shared(name, shape, dtype, swizzle_bytes=swizzle, overlays=overlays)

        self.staged_dk, self.staged_dv = place("dk_out", self.queries.tile), place("dv_out", self.outputs.tile)

    def meet(self) -> None:
        """Wait until all barriers are set up; wefts are spawned when they are."""
        if not self.wefts:
            self.k.sync()

    def copy_out(self, item: Item, target: GlobalHandle, box: SharedBox, col: int) -> None:
        """Start the copy of staged columns of dK or dV to global memory, or their addition with shared heads."""
        self.k.tma_store(target[item.kv_plane, item.key, col], box, reduce=self.tensors.shared_heads)

    def add_part(self, item: Item, row: Index, part: int, stage: int) -> None:
        """Start the addition of a part of dQ of the block at `row` to global memory."""
        self.k.tma_store(self.tensors.dq[item.q_plane, row, part * PART], self.added.stage(stage), reduce=True)
