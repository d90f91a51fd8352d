"""Decoding with FIBER, first launch: keys and values go straight into shared registers, as operands of products.

Four wefts load keys and four load values from global memory, each its quarter of a block, into their own subpartition;
nothing passes through shared memory, and no load waits for another. Four multiply what lies in their subpartition:
query heads are the 16 rows of mma.sync, so no rows are multiplied four times as in a tile of 64. Each has a softmax of
its own over its quarter of the keys. At the end of an item one weft weights and adds up the four results, which it
reads in the registers of all subpartitions. The code is that of A100 and runs on H100 and B200 too.
"""

from __future__ import annotations

from heddle.kernels.attention.decode.fiber_parts import ROWS, WEFTS, WIDTH, Giver, SharedParts
from heddle.kernels.attention.decode.fiber_sum import COMBINE_REGISTERS, Parts, Sum
from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.kernels.attention.softmax import OnlineSoftmax
from heddle.lang import Builder, Index, Item, RegisterHandle, kernel

LOAD_REGISTERS = 12
"""Of a weft that loads: addresses of loads whose operands have not been read."""
MULTIPLY_REGISTERS = 216
"""Of a weft that multiplies: Q, O, scores, weights, values in pairs; the pool's parts have the rest of the window."""
HEAD_DIMS = (64, 128)
"""With 256, O and Q leave no room for the parts in the window."""


@kernel
def decode_split_fiber(k: Builder, problem: DecodeProblem, items: dict[str, list[int]], threads: int) -> None:
    """Persistent over splits of keys."""
    parts = Parts(k, problem)
    _write(k, problem, items, threads, parts, parts)


@kernel
def decode_split_fiber_own(k: Builder, problem: DecodeProblem, items: dict[str, list[int]], threads: int) -> None:
    """The same where no weft reads registers of another subpartition: the four results pass through shared memory."""
    parts = SharedParts(k, problem)
    log = k.registers("own_log", (WEFTS * ROWS, 1), "fp32", warps=(WEFTS, 1))
    _write(k, problem, items, threads, parts, Giver(parts, log))


def _write(
    k: Builder,
    problem: DecodeProblem,
    items: dict[str, list[int]],
    threads: int,
    parts: Parts | SharedParts,
    giver: Parts | Giver,
) -> None:
    """All wefts; `giver` hands over to `parts`."""
    k.flops = problem.packed.flops
    items["steps"] = [more + 1 for more in items["more"]]
    k.work_items(items, clusters=threads)
    d, block = problem.head_dim, (problem.keys, problem.head_dim)
    shape = (problem.planes, problem.seqlen_kv, d)
    sources = [k.tensor(name, shape, problem.dtype) for name in ("K", "V")]
    pools = [k.pool(name, block, problem.dtype)[0] for name in ("keys", "values")]
    products = Products(k, problem, pools[0], pools[1], giver)
    total = Sum(k, problem, parts)

    k.set_fiber_num(begin=1, keys=WEFTS, values=WEFTS, multiply=WEFTS, combine=1)

    with k.role("begin", registers=WEFTS):  # the weft that a FIBER-thread starts with
        pass
    for name, source, pool in zip(("keys", "values"), sources, pools, strict=True):
        with k.role(name, window=0, registers=LOAD_REGISTERS):
            for item in k.work():
                for step in k.range(item.steps, name=f"{name}_step"):
                    k.load(pool, source[item.kv_plane, item.first + step * problem.keys, 0])
                    k.set_busy_bit(pool, "full")
    with k.role("multiply", window=1, registers=MULTIPLY_REGISTERS):
        for item in k.work():
            products.split(item, any(items["more"]))
        giver.close()
    with k.role("combine", window=0, registers=COMBINE_REGISTERS):
        parts.open()
        for item in k.work():
            total.write(item)


class Products:
    """The wefts that multiply."""

    def __init__(
        self, k: Builder, problem: DecodeProblem, keys: RegisterHandle, values: RegisterHandle, giver: Parts | Giver
    ) -> None:
        self.k, self.problem, self.keys, self.values, self.giver = k, problem, keys, values, giver
        d, dtype, own, grid = problem.head_dim, problem.dtype, problem.keys // WEFTS, (WEFTS, 1)
        rows = WEFTS * ROWS
        self.q_global = k.tensor("Q", (problem.planes, problem.group, d), dtype)
        self.query = k.registers("query", (ROWS, d), dtype, warps=(1, WEFTS), spread="first")
        self.scores = k.registers("scores", (rows, own), "fp32", warps=grid)
        self.weights = k.registers("weights", (rows, own), dtype, warps=grid)
        self.pairs = k.registers("pairs", (problem.keys, WIDTH), dtype, warps=grid)
        self.outputs = [k.registers(f"output_{i}", (rows, WIDTH), "fp32", warps=grid) for i in range(d // WIDTH)]
        self.softmax = OnlineSoftmax(k, "softmax", problem.packed, rows, grid)

    def split(self, item: Item, has_more: bool) -> None:
        """All keys of a split, and what they give."""
        k = self.k
        k.load(self.query, self.q_global[item.q_plane, item.row, 0])
        for output in self.outputs:
            k.fill(output)
        self.softmax.begin()
        if has_more:
            with k.when(item.more):
                for _ in k.range(item.more, name="step"):
                    self._step(item, None)
        self._step(item, item.last)
        self.softmax.finish()
        self.giver.give(self.softmax, self.outputs)

    def _step(self, item: Item, masked_col: Index | None) -> None:
        """A block of keys; `masked_col`: the first of it, if some may lie beyond the end."""
        k, softmax, own = self.k, self.softmax, self.problem.keys // WEFTS
        k.mma_apart(self.scores, self.query, self.keys, accumulate=False)
        k.set_busy_bit(self.keys, "empty")
        if masked_col is not None:
            k.mask(self.scores, row=item.row, col=masked_col, limit=self.problem.seqlen_kv, warp_cols=own)
        softmax.maximum(self.scores)
        softmax.exponentials(self.scores)
        softmax.add(self.scores)
        k.elementwise("cast", self.weights, self.scores)
        for index, output in enumerate(self.outputs):
            softmax.rescale(output)
            k.elementwise("pair_rows", self.pairs, self.values.columns(index * WIDTH, WIDTH))
            k.mma_apart(output, self.weights, self.pairs, transposed=True)
        k.set_busy_bit(self.values, "empty")
