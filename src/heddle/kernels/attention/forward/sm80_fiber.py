"""Attention forward on A100 with FIBER: all operands of products in shared vector registers.

A FIBER-thread has blocks of 64 rows of Q, 16 in each subpartition, where everything of a row stays. K and V become
fragments once: wefts of all four subpartitions load a quarter of them each, and wefts of all four read them, across
subpartitions; each gives them back for its own. Four wefts multiply: Q K^T, whose sums they write into the pool, and P
V, which they add up in registers that nobody else touches. For each block four exponentiate: they read the scores
twice, give them back, and write the weights as fragments, with the factor by which the block's output has to be
multiplied. The wefts that multiply always have the scores of the next keys between those that are exponentiated and
the weights that they wait for, and multiply O by the factor between two products. There is no barrier: bits order every
hand-over. Products are weft-level instructions, which the four wefts start together, or mma.syncs.
"""

from __future__ import annotations

from heddle.kernels.attention.forward.sm80_fiber_config import BLOCK_M, GROUP, Fiber80Config, softmax_window
from heddle.kernels.attention.forward.sm80_fiber_memory import Memory
from heddle.kernels.attention.forward.sm80_fiber_softmax import Channels, Softmax
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Item, RegisterHandle, kernel

LOAD_REGISTERS = 16
"""Addresses and counters of a weft that copies and loads."""
SOFTMAX_REGISTERS = 20
"""Registers of a weft that exponentiates: maximum, sum and their like, and two chunks."""
MMA_SYNC_SUMS = 16
"""Registers of the four sums that mma.syncs have on their way to the pool."""
MULTIPLY_REGISTERS = 12
"""Registers of a weft that multiplies, beside O and sums on their way to the pool: the factor, O on its way out."""


class Products:
    """The wefts that multiply: Q K^T of the next keys in front of P V of these, block by block."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: Fiber80Config, memory: Memory) -> None:
        self.k, self.memory, self.blocks = k, memory, range(config.groups)
        d = problem.head_dim
        self.channels = [
            Channels(
                k.pool(f"scores_{b}", (BLOCK_M, config.tile_n), "fp32")[0],
                k.pool(f"weights_{b}", (BLOCK_M, config.tile_n), problem.dtype)[0],
                k.pool(f"factor_{b}", (BLOCK_M, 1), "fp32")[0],
            )
            for b in self.blocks
        ]
        self.outputs = [k.registers(f"output_{b}", (BLOCK_M, d), "fp32", warps=(GROUP, 1)) for b in self.blocks]
        self.factor = k.registers("factor", (BLOCK_M, 1), "fp32", warps=(GROUP, 1))

    def tile(self, item: Item, has_one: bool, has_more: bool, has_middle: bool) -> None:
        """All keys of a tile: the scores of a step of keys are under way while those of the last are exponentiated."""
        k = self.k
        for output in self.outputs:
            k.fill(output)
        if has_one:
            with k.when(item.one):
                self._scores(last=True)
        if has_more:
            with k.when(item.more):
                self._scores(last=False)
                if has_middle:
                    with k.when(item.middle):
                        for _ in k.range(item.middle, name="step"):
                            self._step(last=False)
                self._step(last=True)
        for b in self.blocks:
            self._take_factor(b)
            self._add(b)
        self._end_values()
        for b in self.blocks:
            self._take_factor(b)
            k.elementwise("mul", self.outputs[b], self.outputs[b], self.factor)
            k.store(self.memory.o_global[item.q_plane, item.row + b * BLOCK_M, 0], self.outputs[b])

    def _scores(self, last: bool) -> None:
        for b in self.blocks:
            self._score(b, last)
        self._end_keys()

    def _step(self, last: bool) -> None:
        for b in self.blocks:
            self._take_factor(b)
            self._score(b, last)
            if b == self.blocks[-1]:
                self._end_keys()
            self._add(b)
        self._end_values()

    def _score(self, b: int, last: bool) -> None:
        """S = Q K^T of a block; Q is given back at the last keys of a tile."""
        k, query = self.k, self.memory.queries[b]
        self._multiply(self.channels[b].scores, query, self.memory.keys, accumulate=False)
        k.set_busy_bit(self.channels[b].scores, "full")
        if last:
            k.set_busy_bit(query, "empty")

    def _add(self, b: int) -> None:
        """O = O * factor + P V of a block."""
        k, output = self.k, self.outputs[b]
        k.elementwise("mul", output, output, self.factor)
        self._multiply(output, self.channels[b].weights, self.memory.values, transposed=True)
        k.set_busy_bit(self.channels[b].weights, "empty")

    def _multiply(
        self,
        acc: RegisterHandle,
        a: RegisterHandle,
        b: RegisterHandle,
        *,
        accumulate: bool = True,
        transposed: bool = False,
    ) -> None:
        """A product with K or V, which lie in all subpartitions."""
        self.k.mma(acc, a, b, accumulate=accumulate, transposed=transposed)

    def _take_factor(self, b: int) -> None:
        self.k.elementwise("copy", self.factor, self.channels[b].factor)
        self.k.set_busy_bit(self.channels[b].factor, "empty")

    def _end_keys(self) -> None:
        self.k.set_busy_bit(self.memory.keys, "empty")

    def _end_values(self) -> None:
        self.k.set_busy_bit(self.memory.values, "empty")


@kernel
def attention_sm80_fiber(
    k: Builder, problem: AttentionProblem, config: Fiber80Config, items: dict[str, list[int]], clusters: int
) -> None:
    """Persistent over the tiles of Q; every hand-over between wefts is a pool tensor."""
    k.flops = problem.flops
    k.work_items(items, clusters=clusters, schedule=config.order)
    memory = Memory(k, problem, config)
    write_roles(k, problem, config, items, memory, Products(k, problem, config, memory))


def write_roles(
    k: Builder,
    problem: AttentionProblem,
    config: Fiber80Config,
    items: dict[str, list[int]],
    memory: Memory,
    products: Products,
) -> None:
    """All wefts, wherever K and V lie."""
    blocks = range(config.groups)
    softmax = {f"softmax{b}": GROUP for b in blocks}
    k.set_fiber_num(begin=1, keys=GROUP, values=GROUP, **softmax, multiply=GROUP)

    with k.role("begin", registers=GROUP):  # the weft that a FIBER-thread starts with
        pass
    with k.role("keys", window=0, registers=LOAD_REGISTERS, pace=config.pace):
        for item in k.work():
            memory.load_keys(item, any(items["steady"]))
    with k.role("values", window=0, registers=LOAD_REGISTERS, pace=config.pace):
        for item in k.work():
            memory.load_values(item, any(items["steady"]))
    for b in blocks:
        with k.role(
            f"softmax{b}", window=softmax_window(problem, config), registers=SOFTMAX_REGISTERS, pace=config.pace
        ):
            online = Softmax(k, problem, config, b, products.channels[b])
            for item in k.work():
                online.tile(item, any(items["masked"]), any(items["plain"]))
    with k.role("multiply", window=1, registers=multiply_registers(problem, config)):
        for item in k.work():
            products.tile(item, any(items["one"]), any(items["more"]), any(items["middle"]))


def multiply_registers(problem: AttentionProblem, config: Fiber80Config) -> int:
    """Registers of a weft that multiplies; a weft-level product has the scores of all keys of a step on their way."""
    on_their_way = config.tile_n // 2 if config.weft_level else MMA_SYNC_SUMS
    return config.groups * problem.head_dim // 2 + on_their_way + MULTIPLY_REGISTERS
