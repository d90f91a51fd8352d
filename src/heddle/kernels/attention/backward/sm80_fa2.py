"""FlashAttention 2, backward: a block of keys of one query head a CTA, which goes through the queries that see it.

All warps work on each of the five products. P and dS are written to shared memory, where products read them along
either side. dK and dV stay in registers; what a block adds to dQ goes to memory by atomic adds of single words.
"""

from __future__ import annotations

from heddle.kernels.attention.backward.shape import BackwardConfig, backward_flops
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E
from heddle.lang import Builder, Index, Item, kernel

REGISTERS = 255
"""Of a thread: the most there are. dK, dV, S and dP take up to 192 of them."""


@kernel
def attention_bwd_fa2(
    k: Builder, problem: AttentionProblem, config: BackwardConfig, items: dict[str, list[int]]
) -> None:
    """Go through the blocks of queries from the last one to the first that sees a key."""
    k.flops = backward_flops(problem)
    k.work_items(items, clusters=len(items["col"]), schedule="launch")
    tile = Tile(k, problem, config)
    below = -config.tile_m
    with k.role("worker", warps=config.warps, registers=REGISTERS):
        for item in k.work():
            tile.start(item)
            for name, start in (("plain", item.first), ("masked", item.edge)):
                count = f"loop_{name}"
                if not any(items[count]):
                    continue
                with k.when(getattr(item, count)):
                    for block in k.range(getattr(item, count), name=name):
                        row = start + block * below
                        tile.step(item, row, masked=name == "masked", following=start + below + block * below)
            for name in ("plain", "masked"):
                if any(items[f"last_{name}"]):
                    with k.when(getattr(item, f"last_{name}")):
                        tile.step(item, item.end + 0, masked=name == "masked", following=None)
            tile.store(item)


class Tile:
    """What a CTA keeps: K, V, dK and dV of its keys, and blocks of Q and dO in turn."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: BackwardConfig) -> None:
        self.k, self.problem, self.config = k, problem, config
        m, n, d, dtype = config.tile_m, config.tile_n, problem.head_dim, problem.dtype
        planes, queries, keys = problem.batch * problem.heads_q, problem.seqlen_q, problem.seqlen_kv
        self.q_global, self.do_global = (k.tensor(name, (planes, queries, d), dtype) for name in ("Q", "dO"))
        shape = (problem.batch * problem.heads_kv, keys, d)
        self.k_global, self.v_global = (k.tensor(name, shape, dtype) for name in ("K", "V"))
        self.lse_global, self.delta_global = (k.tensor(name, (planes, queries, 1), "fp32") for name in ("LSE", "delta"))
        self.dq_global = k.tensor("dQ_accum", (planes, queries, d), "fp32", role="output")
        self.outputs = [k.tensor(name, (planes, keys, d), dtype, role="output") for name in ("dK_heads", "dV_heads")]
        self.query = k.shared("q", (m, d), dtype, stages=config.stages)
        self.ring = k.ring("query", config.stages)
        self.gradient = k.shared("do", (m, d), dtype)
        self.keys, self.values = (k.shared(name, (n, d), dtype) for name in ("k", "v"))
        self.weights, self.slopes = (k.shared(name, (m, n), dtype) for name in ("p", "ds"))
        scores, sums = config.grid(config.scores_rows), config.grid(config.keys_rows)
        self.scores, self.products = (k.registers(name, (m, n), "fp32", warps=scores) for name in ("s", "dp"))
        self.lse, self.exponent, self.delta = (
            k.registers(name, (m, 1), "fp32", warps=scores) for name in ("lse", "exponent", "sums")
        )
        self.dk, self.dv = (k.registers(name, (n, d), "fp32", warps=sums) for name in ("dk", "dv"))
        self.dq = k.registers("dq", (m, d), "fp32", warps=config.grid(config.queries_rows))
        self.rows = k.registers("out", (n, d), dtype, warps=_passing_grid(n, config.warps))

    def start(self, item: Item) -> None:
        """Start the copies of dO, Q, K and V, and load the logarithms of the sums."""
        k = self.k
        k.cp_async(self.gradient[:], self.do_global[item.plane, item.first, 0])
        k.cp_async(self.query[self.ring], self.q_global[item.plane, item.first, 0])
        k.load(self.lse, self.lse_global[item.plane, item.first, 0])
        k.cp_async(self.keys[:], self.k_global[item.kv_plane, item.col, 0])
        k.cp_async(self.values[:], self.v_global[item.kv_plane, item.col, 0])
        k.cp_async_commit()
        k.fill(self.dv)
        k.fill(self.dk)

    def step(self, item: Item, row: Index, *, masked: bool, following: Index | None) -> None:
        """One block of queries at `row`, while the block at `following`, if there is one, is copied."""
        k = self.k
        k.cp_async_wait(pending=0)
        k.sync()
        k.load(self.delta, self.delta_global[item.plane, row, 0])
        self.weigh(item, row, masked=masked)
        k.mma(self.products, self.gradient[:], self.values[:], accumulate=False)
        k.elementwise("sub", self.products, self.products, self.delta)
        k.elementwise("mul", self.products, self.scores, self.products)
        if following is not None and self.config.stages > 1:
            k.cp_async(self.query[self.ring + 1], self.q_global[item.plane, following, 0])
            k.cp_async_commit()
        k.store(self.slopes[:], self.products)
        k.sync()
        k.mma(self.dv, self.weights[:], self.gradient[:], a_transposed=True, transposed=True)
        k.sync()
        if following is not None:
            k.cp_async(self.gradient[:], self.do_global[item.plane, following, 0])
            k.cp_async_commit()
        k.mma(self.dq, self.slopes[:], self.keys[:], transposed=True, accumulate=False)
        if following is not None:
            k.load(self.lse, self.lse_global[item.plane, following, 0])
        k.store(self.dq_global[item.plane, row, 0], self.dq, reduce=True)
        k.mma(self.dk, self.slopes[:], self.query[self.ring], a_transposed=True, transposed=True)
        if following is not None and self.config.stages == 1:
            k.sync()
            k.cp_async(self.query[self.ring], self.q_global[item.plane, following, 0])
            k.cp_async_commit()
        self.ring.advance()

    def weigh(self, item: Item, row: Index, *, masked: bool) -> None:
        """P = exp(S - LSE), into shared memory too."""
        k, problem = self.k, self.problem
        k.mma(self.scores, self.query[self.ring], self.keys[:], accumulate=False)
        if masked:
            k.mask(
                self.scores,
                row=row,
                col=item.col,
                causal=problem.causal,
                limit=problem.seqlen_kv,
                diagonal=problem.diagonal,
            )
        k.elementwise("scale", self.exponent, self.lse, scalars=(LOG2_E,))
        k.elementwise("exp2_scaled_sub", self.scores, self.scores, self.exponent, scalars=(problem.scale * LOG2_E,))
        k.store(self.weights[:], self.scores)

    def store(self, item: Item) -> None:
        """Scale dK and store both through the memory of K and V, so that lanes write 16 bytes side by side."""
        k = self.k
        k.elementwise("scale", self.dk, self.dk, scalars=(self.problem.scale,))
        k.sync()
        through = (self.keys, self.values)
        for shared, registers in zip(through, (self.dk, self.dv), strict=True):
            k.store(shared[:], registers)
        k.sync()
        for shared, output in zip(through, self.outputs, strict=True):
            k.load(self.rows, shared[:])
            k.store(output[item.plane, item.col, 0], self.rows)


def _passing_grid(rows: int, warps: int) -> tuple[int, int]:
    """Return the warps along rows and columns of a tile that goes from shared to global memory."""
    along = min(warps, rows // 16)
    return along, warps // along
