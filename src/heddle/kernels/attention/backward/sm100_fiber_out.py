"""The wefts of the FIBER-native backward pass of B200 that bring gradients from tensor to shared memory."""

from __future__ import annotations

from heddle.kernels.attention.backward.sm100_fa4_config import ROWS
from heddle.kernels.attention.backward.sm100_fiber_config import GROUP, LANES, PART, STEP
from heddle.kernels.attention.backward.sm100_fiber_memory import Memory
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Item, TensorMemoryHandle, Token


class Out:
    """dQ^T step by step, where a lane has an element of a head, or dQ block by block; then dV and dK."""

    def __init__(self, k: Builder, problem: AttentionProblem, memory: Memory) -> None:
        self.k, self.problem, self.memory = k, problem, memory
        self.part = k.registers("part", (ROWS, PART), "fp32", warps=(GROUP, 1))

    def run(self, item: Item) -> None:
        """An item."""
        k, memory = self.k, self.memory
        for _ in k.range(item.blocks, name="taken"):
            for _ in range(LANES // memory.change_steps):
                self.step()
        self.gradient(memory.dv, memory.dv_done)
        self.gradient(memory.dk, memory.dk_done, scale=self.problem.scale)

    def step(self) -> None:
        """dQ^T of a step, a part of its queries at a time, or dQ of a block, a part of the head's elements."""
        k, memory, ring = self.k, self.memory, self.memory.added_ring
        memory.dq_issued.take()
        for col in range(0, STEP if memory.transposed else memory.d, PART):
            k.load(self.part, memory.dq[:].columns(col, PART))
            k.set_busy_bit(memory.dq[:].columns(col, PART), "empty")
            memory.added_empty.wait(ring, flip=True)
            k.store(memory.added[ring], self.part, transposed=memory.transposed, thread_order=True)
            k.fence()
            memory.added_full.arrive(ring)
            ring.advance()

    def gradient(self, source: TensorMemoryHandle, done: Token, *, scale: float | None = None) -> None:
        """dV or dK, as many columns as are staged at a time."""
        k, memory, width = self.k, self.memory, self.memory.out_columns
        done.take()
        for col in range(0, memory.d, PART):
            if col % width == 0:
                memory.out_empty.wait(memory.out_ring, flip=True)
            k.load(self.part, source[:].columns(col, PART))
            if scale is not None:
                k.elementwise("scale", self.part, self.part, scalars=(scale,))
            box = memory.out[:].part(col=col % width, cols=PART)
            k.store(box, self.part, thread_order=memory.tensors.shared_heads)
            if (col + PART) % width == 0:
                k.fence()
                memory.out_full.arrive(memory.out_ring)
                memory.out_ring.advance()
