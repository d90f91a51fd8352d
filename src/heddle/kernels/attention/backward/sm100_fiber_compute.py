"""The wefts of the FIBER-native backward pass of B200 that compute, a key a lane: some P, others dS.

As fragments, rounded, both pass to the products in the pool, and P to those that compute dS, too. So the exponentials
of a step run beside the differences of the one before. At head size 64, where a step has half as many products, two
groups make P, each of every second step.
"""

from __future__ import annotations

from collections.abc import Iterator

from heddle.ir.warp_fiber import TENSOR_COLUMNS
from heddle.kernels.attention.backward.sm100_fa4_config import ROWS
from heddle.kernels.attention.backward.sm100_fiber_config import CHANGE_CHUNK, GROUP, LANES, STEP
from heddle.kernels.attention.backward.sm100_fiber_memory import Memory, Steps
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E
from heddle.lang import Builder, Index, Item, RegisterHandle, TensorMemoryHandle

BUFFERS = 2
"""Chunks in registers: one is computed on while the next is on its way."""


class Columns:
    """What both roles do: take columns of tensor memory and of a row statistic, `size` at a time."""

    def __init__(self, k: Builder, problem: AttentionProblem, memory: Memory, name: str, size: int) -> None:
        self.k, self.problem, self.memory, self.name, self.size = k, problem, memory, name, size
        self.taken = [self.tile(f"taken{i}") for i in range(BUFFERS)]
        self.statistics = [self._statistic(f"statistic{i}") for i in range(BUFFERS)]

    def tile(self, name: str, dtype: str = "fp32") -> RegisterHandle:
        """Declare registers for a chunk."""
        return self.k.registers(f"{name}_{self.name}", (ROWS, self.size), dtype, warps=(GROUP, 1))

    def _statistic(self, name: str) -> RegisterHandle:
        return self.k.registers(f"{name}_{self.name}", (1, self.size), "fp32", warps=(GROUP, 1), spread="columns")

    def walk(self, source: TensorMemoryHandle, steps: Steps) -> Iterator[tuple[int, RegisterHandle, RegisterHandle]]:
        """Yield (first column, columns, their statistics), the next chunk being under way; columns are given back."""
        size = self.size
        steps.known.wait(steps.ring)
        chunks = STEP // size
        self._load(source, steps, 0)
        for chunk in range(chunks):
            if chunk + 1 < chunks:
                self._load(source, steps, chunk + 1)
            yield chunk * size, self.taken[chunk % BUFFERS], self.statistics[chunk % BUFFERS]

    def _load(self, source: TensorMemoryHandle, steps: Steps, chunk: int) -> None:
        k, col, end = self.k, chunk * self.size, (chunk + 1) * self.size
        k.load(self.taken[chunk % BUFFERS], source[:].columns(col, self.size))
        if end % TENSOR_COLUMNS == 0:
            k.set_busy_bit(source[:].columns(end - TENSOR_COLUMNS, TENSOR_COLUMNS), "empty")
        k.load(self.statistics[chunk % BUFFERS], steps.statistics[steps.ring].part(col=col, cols=self.size))


class Weights(Columns):
    """P^T = 2^(S^T scale log2(e) - LSE), masked, of all steps, or of those of a lane."""

    def __init__(self, k: Builder, problem: AttentionProblem, memory: Memory, first: int, size: int) -> None:
        super().__init__(k, problem, memory, f"weights{first}", size)
        self.first = first

    def run(self, item: Item) -> None:
        """All steps of an item; each group gives all statistics back, whosever step it is."""
        memory, queries = self.memory, self.memory.queries
        for block in self.k.range(item.blocks, name=f"weighed{self.first}"):
            for lane in range(LANES):
                if lane % memory.apart == self.first:
                    self.step(item, item.first + block * ROWS + lane * STEP, lane)
                queries.used.arrive(queries.ring)
                queries.ring.advance()

    def step(self, item: Item, query: Index, lane: int) -> None:
        """One step."""
        k, memory, scale = self.k, self.memory, self.problem.scale * LOG2_E
        memory.issued[lane].take()
        for col, scores, lse in self.walk(memory.scores[lane], memory.queries):
            self.mask(item, query + col, scores)
            k.elementwise("exp2_scaled_sub", scores, scores, lse, scalars=(scale,))
            for weights in (memory.weights[lane], memory.factors[lane]):
                k.elementwise("cast", weights.columns(col, self.size), scores)
        k.set_busy_bit(memory.weights[lane], "full")
        k.set_busy_bit(memory.factors[lane], "full")

    def mask(self, item: Item, query: Index, scores: RegisterHandle) -> None:
        """Leave out keys beyond the end and, if causal, queries before the key."""
        self.k.mask(
            scores,
            row=item.key,
            col=query,
            causal=self.problem.causal,
            limit=self.problem.seqlen_kv,
            diagonal=self.problem.diagonal,
            transposed=True,
        )


class Changes(Columns):
    """dS^T = P^T (dP^T - row sums), to the pool and to shared memory."""

    def __init__(self, k: Builder, problem: AttentionProblem, memory: Memory) -> None:
        super().__init__(k, problem, memory, "changes", CHANGE_CHUNK)
        self.factors = self.tile("factors")
        self.rounded = [self.tile(f"rounded{i}", problem.dtype) for i in range(BUFFERS)]

    def run(self, item: Item) -> None:
        """All steps of an item."""
        for _ in self.k.range(item.blocks, name="changed"):
            for lane in range(LANES):
                self.step(lane)

    def step(self, lane: int) -> None:
        """One step."""
        k, memory, ring, outputs = self.k, self.memory, self.memory.change_ring, self.memory.outputs
        place, factors, changes = lane % memory.change_steps, memory.factors[lane], memory.changes[lane]
        memory.gradient_issued[lane].take()
        if place == 0:
            memory.change_empty.wait(ring, flip=True)
        for col, gradient, dpsum in self.walk(memory.gradient[lane], outputs):
            rounded = self.rounded[col // self.size % BUFFERS]
            k.elementwise("sub", gradient, gradient, dpsum)
            k.elementwise("cast", self.factors, factors.columns(col, self.size))
            k.elementwise("mul", gradient, gradient, self.factors)
            k.elementwise("cast", rounded, gradient)
            k.elementwise("copy", changes.columns(col, self.size), rounded)
            k.store(memory.change[ring].part(col=place * STEP + col, cols=self.size), rounded)
        k.set_busy_bit(factors, "empty")
        k.set_busy_bit(changes, "full")
        if place + 1 == memory.change_steps:
            k.fence()
            memory.change_full.arrive(ring)
            ring.advance()
        outputs.used.arrive(outputs.ring)
        outputs.ring.advance()
