"""Attention forward on H100 with FIBER: scores, softmax and values in wefts of their own, joined by shared registers.

A FIBER-thread has blocks of 64 rows of Q, 16 in each subpartition, where everything of a row stays. One group of four
wefts multiplies Q K^T: the sum grows in registers of its own, and the last step of the chain writes the pool. Per
block four wefts exponentiate: they read the scores twice, give them back, and write the weights into the pool as
fragments, with the factor by which the block's output has to be multiplied. Another group multiplies P V into registers
that nobody else touches, so it multiplies by the factor itself. Scores never pass through shared memory.

Lockstep instructions of the two groups must reach the matrix units in one order in all subpartitions: Q(i + lead), P(i)
over blocks i = (step, block of rows). Turns in the pool keep it. The order does not end with a tile: the first scores
of the next one are under way while the output of this one is written.
"""

from __future__ import annotations

from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.sm90_fiber_config import BLOCK_M, FiberConfig
from heddle.kernels.attention.sm90_fiber_memory import GROUP, Memory
from heddle.kernels.attention.sm90_fiber_softmax import Softmax
from heddle.lang import Builder, Item, kernel

COPY_REGISTERS = 4
"""Registers of a role that copies."""
TURN_REGISTERS = 4
"""Registers of a role that multiplies, beside its tiles."""
STORE_REGISTERS = 10
"""The same for rescaling O and converting it on its way out."""
SOFTMAX_REGISTERS = 18
"""Registers of a role that exponentiates: maximum, sum and their like, and two chunks."""


class Turns:
    """One order for the matrix units: the scores run `lead` blocks ahead of the values."""

    def __init__(self, k: Builder, lead: int) -> None:
        self.k, self.lead = k, lead
        self.names = ("scores", "values")
        self.given = {name: k.pool(f"after_{name}", (BLOCK_M, 1), "fp32")[0] for name in self.names}
        self.taken = {name: k.registers(f"{name}_turn", (BLOCK_M, 1), "fp32", warps=(GROUP, 1)) for name in self.names}

    def take(self, role: str) -> None:
        """Wait until the other role has issued its part."""
        given = self.given["values" if role == "scores" else "scores"]
        self.k.elementwise("copy", self.taken[role], given)
        self.k.set_busy_bit(given, "empty")

    def give(self, role: str) -> None:
        """Let the other role issue: its instructions come after those that have issued."""
        self.k.fill(self.given[role])
        self.k.set_busy_bit(self.given[role], "full")

    def begin_values(self) -> None:
        """Let the scores run ahead."""
        self.give("values")
        for _ in range(self.lead):
            self.take("values")
            self.give("values")

    def end_scores(self) -> None:
        """Let the values catch up, and take the turn that is left over."""
        for _ in range(self.lead):
            self.take("scores")
            self.give("scores")
        self.take("scores")


class Products:
    """The two roles that multiply."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberConfig, memory: Memory) -> None:
        self.k, self.config, self.memory, d = k, config, memory, problem.head_dim
        blocks = range(config.groups)
        self.scores = [k.pool(f"scores{b}", (BLOCK_M, config.tile_n), "fp32") for b in blocks]
        self.weights = [k.pool(f"weights{b}", (BLOCK_M, config.tile_n), problem.dtype) for b in blocks]
        self.factors = [k.pool(f"factor{b}", (BLOCK_M, 1), "fp32") for b in blocks]
        self.partial = k.registers("partial", (BLOCK_M, config.tile_n), "fp32", warps=(GROUP, 1))
        self.output = [k.registers(f"output{b}", (BLOCK_M, d), "fp32", warps=(GROUP, 1)) for b in blocks]
        self.factor = k.registers("factor", (BLOCK_M, 1), "fp32", warps=(GROUP, 1))
        self.turns = Turns(k, lead=config.groups)

    def score(self, item: Item) -> None:
        """Scores of all blocks of keys with all blocks of rows, from the last keys to the first."""
        k, memory = self.k, self.memory
        memory.query_full.wait(memory.query_ring)
        for _ in k.range(item.more + 1, name="keys"):
            memory.keys.wait()
            for block, pool in enumerate(self.scores):
                self.turns.take("scores")
                rows = memory.query_rows(block)
                k.mma(pool[0], rows, memory.keys.current, plus=self.partial, accumulate=False)
                k.set_busy_bit(pool[0], "full")
                self.turns.give("scores")
            memory.keys.release()
        memory.query_empty.arrive(memory.query_ring)
        memory.query_ring.advance()

    def value(self, item: Item, more: bool) -> None:
        """Values of all blocks of keys, then the output."""
        k, memory = self.k, self.memory
        self._values(first=True)
        if more:
            with k.when(item.more):
                for _ in k.range(item.more, name="values"):
                    self._values(first=False)
        memory.output_empty.wait(memory.output_ring, flip=True)
        for block in range(self.config.groups):
            self._rescale(block)
            k.store(memory.output_rows(block), self.output[block])
            k.fence()
            memory.output_full.arrive(memory.output_ring)
        memory.output_ring.advance()

    def _values(self, first: bool) -> None:
        """One block of keys: rescale what there is, add."""
        k, memory = self.k, self.memory
        for block, weights in enumerate(self.weights):
            if not first:
                self._rescale(block)
            if block == 0:
                memory.values.wait()
            self.turns.take("values")
            k.mma(self.output[block], weights[0], memory.values.current, accumulate=not first, transposed=True)
            k.set_busy_bit(weights[0], "empty")
            self.turns.give("values")
        memory.values.release()

    def _rescale(self, block: int) -> None:
        k, given = self.k, self.factors[block][0]
        k.elementwise("copy", self.factor, given)
        k.set_busy_bit(given, "empty")
        k.elementwise("mul", self.output[block], self.output[block], self.factor)


@kernel
def attention_fiber(
    k: Builder, problem: AttentionProblem, config: FiberConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """Persistent over the tiles of Q; every hand-over between wefts is a pool tensor or an mbarrier."""
    k.flops, k.cluster_size = problem.flops, config.cluster
    k.work_items(items, clusters=clusters, schedule=config.order)
    memory = Memory(k, problem, config)
    products = Products(k, problem, config, memory)
    blocks, more = range(config.groups), any(items["more"])
    masked, plain = any(items["masked"]), any(items["plain"])

    k.set_fiber_num(load=1, store=1, scores=GROUP, values=GROUP, **{f"softmax{b}": GROUP for b in blocks})

    with k.role("load", window=1, registers=COPY_REGISTERS):
        memory.meet()
        for item in k.work():
            memory.load(item, more)
        memory.part()
    with k.role("store", window=1, registers=COPY_REGISTERS):
        for item in k.work():
            memory.store(item)
    with k.role("scores", window=0, registers=config.tile_n // 2 + TURN_REGISTERS):
        for item in k.work():
            products.score(item)
        products.turns.end_scores()
    with k.role("values", window=1, registers=config.groups * problem.head_dim // 2 + STORE_REGISTERS):
        products.turns.begin_values()
        for item in k.work():
            products.value(item, more)
    for b in blocks:
        with k.role(f"softmax{b}", window=b, registers=SOFTMAX_REGISTERS):
            channels = products.scores[b], products.weights[b], products.factors[b]
            softmax = Softmax(k, problem, config, b, channels)
            for item in k.work():
                softmax.tile(item, masked, plain)
