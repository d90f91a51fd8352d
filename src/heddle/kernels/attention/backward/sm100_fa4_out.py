"""What leaves a CTA of the backward pass on B200: dQ block by block, dK and dV at the end."""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.backward.sm100_fa4_config import (
    ADDED_STAGES,
    GROUPS,
    PAIR_ADDED_COLUMNS,
    PAIR_ADDED_STAGES,
    PART,
    ROWS,
    staged_columns,
)
from heddle.kernels.attention.backward.sm100_fa4_memory import Memory
from heddle.kernels.attention.backward.sm100_fa4_pair_memory import PairMemory
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Barrier, Builder, GlobalHandle, Item, SharedHandle, TensorMemoryHandle

REDUCE, EPILOGUE = 2, 3
"""Named barriers: of the warps that bring dQ out; the first of those of the groups that compute."""


def reduce(k: Builder, problem: AttentionProblem, memory: Memory) -> None:
    """Take dQ out of tensor memory, and add it to global memory by bulk copies, a part of its columns at a time."""
    tile = k.registers("dq_out", (ROWS, problem.head_dim), "fp32", warps=(GROUP_WARPS, 1))
    memory.meet()
    for item in k.work():
        for block in k.range(item.blocks, name="reduced"):
            memory.dq_full.wait(memory.step)
            k.load(tile, memory.tm_dq[:])
            memory.dq_empty.arrive(memory.step)
            memory.step.advance()
            for part in range(problem.head_dim // PART):
                stage = part % ADDED_STAGES
                k.store(memory.added.stage(stage), tile.columns(part * PART, PART), thread_order=True)
                k.fence()
                k.sync(REDUCE)
                memory.add_part(item, item.first + block * ROWS, part, stage)
                k.tma_store_wait(pending=ADDED_STAGES - 1)
                k.sync(REDUCE)  # the other stage has been read
        k.tma_store_wait(pending=0)


def reduce_pair(k: Builder, memory: PairMemory) -> None:
    """Take the half of the queries of dQ that a CTA has out of tensor memory, where it is folded, and add it."""
    tile = k.registers("dq_out", (ROWS, memory.half), "fp32", warps=(GROUP_WARPS, 1))
    k.cluster_sync()
    for item in k.work():
        for block in k.range(item.blocks, name="reduced"):
            memory.dq_full.wait(memory.step)
            k.load(tile, memory.tm_dq[:])
            memory.dq_empty.arrive(cta="leader")
            memory.step.advance()
            for part in range(memory.half // PAIR_ADDED_COLUMNS):
                stage, columns = part % PAIR_ADDED_STAGES, tile.columns(part * PAIR_ADDED_COLUMNS, PAIR_ADDED_COLUMNS)
                k.store(memory.added.stage(stage), columns, thread_order=True)
                k.fence()
                k.sync(REDUCE)
                memory.add_part(item, item.first + block * ROWS, part, stage)
                k.tma_store_wait(pending=PAIR_ADDED_STAGES - 1)
                k.sync(REDUCE)  # the stage that comes next has been read
        k.tma_store_wait(pending=0)


class Gradients:
    """The way of dK and dV out: a group has half of their columns."""

    def __init__(self, k: Builder, problem: AttentionProblem, memory: Memory | PairMemory, group: int) -> None:
        self.k, self.problem, self.memory, self.group = k, problem, memory, group
        self.columns = staged_columns(problem)
        self.tile = k.registers(f"out{group}", (ROWS, self.columns), "fp32", warps=(GROUP_WARPS, 1))

    def run(self, item: Item) -> None:
        """dV, then dK times the scale of the scores."""
        memory, tensors = self.memory, self.memory.tensors
        self.copy(item, memory.dv_full, memory.tm_dv, memory.staged_dv, tensors.dv)
        self.copy(item, memory.dk_full, memory.tm_dk, memory.staged_dk, tensors.dk, scale=self.problem.scale)
        self.k.tma_store_wait(pending=0)

    def copy(
        self,
        item: Item,
        full: Barrier,
        source: TensorMemoryHandle,
        staged: SharedHandle,
        target: GlobalHandle,
        *,
        scale: float | None = None,
    ) -> None:
        """Stage as many columns as there is room for, and copy them out, until the group's half is done."""
        k, memory, width = self.k, self.memory, self.problem.head_dim // GROUPS
        full.wait()
        for start in range(0, width, self.columns):
            col = self.group * width + start
            k.load(self.tile, source[:].columns(col, self.columns))
            if scale is not None:
                k.elementwise("scale", self.tile, self.tile, scalars=(scale,))
            box = staged[:].part(col=self.group * self.columns, cols=self.columns)
            k.store(box, self.tile, thread_order=memory.tensors.shared_heads)
            k.fence()
            k.sync(EPILOGUE + self.group)
            memory.copy_out(item, target, box, col)
            if start + self.columns < width:
                k.tma_store_wait(pending=0)
                k.sync(EPILOGUE + self.group)  # what is staged has been read
