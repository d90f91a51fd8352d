"""FlashAttention 2, backward: a block of keys of one query head a CTA, which goes through the queries that see it.

All warps work on each of the five products. P and dS are written to shared memory, where products read them along
either side. dK and dV stay in registers; what a block adds to dQ goes to memory by atomic adds of single words.
"""

from __future__ import annotations

from heddle.kernels.attention.backward.shape import BackwardConfig, backward_flops
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E
from heddle.lang import Builder, GlobalHandle, Index, Item, RegisterHandle, SharedBox, kernel

MEETING = 1
"""The named barrier at which the warps of several roles meet."""
REGISTERS = 255
"""Of a thread: the most there are. dK, dV, S and dP take up to 192 of them."""


@kernel
def attention_bwd_fa2(
    k: Builder, problem: AttentionProblem, config: BackwardConfig, items: dict[str, list[int]]
) -> None:
    """Go through the blocks of queries from the last one to the first that sees a key."""
    k.flops = backward_flops(problem)
    k.work_items(items, clusters=len(items["col"]), schedule="launch")
    tile = Tile(k, problem, config, Memory(k, problem, config))
    with k.role("worker", warps=config.warps, registers=REGISTERS):
        blocks(k, config, items, tile)


def blocks(k: Builder, config: BackwardConfig, items: dict[str, list[int]], tile: Tile) -> None:
    """The code of a role: all blocks of queries of its keys."""
    below = -config.tile_m
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


class Memory:
    """Tensors, K and V of the keys, blocks of Q and dO in turn, P and dS of a block."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: BackwardConfig) -> None:
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


class Tile:
    """What a role has of the keys' work: all of it, or with `parts` roles one part.

    A part is `keys` of the keys, from `key` on: their S, dP, dK and dV, and as large a part of the columns of dQ.
    """

    def __init__(
        self,
        k: Builder,
        problem: AttentionProblem,
        config: BackwardConfig,
        memory: Memory,
        part: int = 0,
        parts: int = 1,
    ) -> None:
        self.k, self.problem, self.config, self.memory, self.ring = k, problem, config, memory, memory.ring
        self.part, self.parts, self.warps = part, parts, config.warps // parts
        self.keys, self.columns = config.tile_n // parts, problem.head_dim // parts
        self.key, self.column = part * self.keys, part * self.columns
        self.suffix = str(part) if parts > 1 else ""
        m, d = config.tile_m, problem.head_dim
        scores, sums = self._grid(config.scores_rows), self._grid(config.keys_rows // parts)
        self.scores, self.products = (self._tile(name, (m, self.keys), "fp32", scores) for name in ("s", "dp"))
        self.lse, self.exponent, self.delta = (
            self._tile(name, (m, 1), "fp32", scores) for name in ("lse", "exponent", "sums")
        )
        self.dk, self.dv = (self._tile(name, (self.keys, d), "fp32", sums) for name in ("dk", "dv"))
        self.dq = self._tile("dq", (m, self.columns), "fp32", self._grid(config.queries_rows))
        self.rows = self._tile("out", (self.keys, d), problem.dtype, _passing_grid(self.keys, self.warps))

    def _tile(self, name: str, shape: tuple[int, int], dtype: str, warps: tuple[int, int]) -> RegisterHandle:
        return self.k.registers(f"{name}{self.suffix}", shape, dtype, warps=warps)

    def _grid(self, rows: int) -> tuple[int, int]:
        return rows, self.warps // rows

    def _own_keys(self, box: SharedBox) -> SharedBox:
        return box.part(row=self.key, rows=self.keys)

    def _own_columns(self, box: SharedBox) -> SharedBox:
        return box.part(col=self.key, cols=self.keys)

    def _meet(self) -> None:
        if self.parts > 1:
            self.k.sync(MEETING, warps=self.config.warps)
        else:
            self.k.sync()

    def _copy(self, target: SharedBox, source: GlobalHandle, plane: Index, row: Index) -> None:
        """Start the copy of the role's part of the rows of a block."""
        rows = target.ref.rows // self.parts
        self.k.cp_async(target.part(row=self.part * rows, rows=rows), source[plane, row + self.part * rows, 0])

    def start(self, item: Item) -> None:
        """Start the copies of dO, Q, K and V, and load the logarithms of the sums."""
        k, memory = self.k, self.memory
        self._copy(memory.gradient[:], memory.do_global, item.plane, item.first)
        self._copy(memory.query[self.ring], memory.q_global, item.plane, item.first)
        k.load(self.lse, memory.lse_global[item.plane, item.first, 0])
        self._copy(memory.keys[:], memory.k_global, item.kv_plane, item.col)
        self._copy(memory.values[:], memory.v_global, item.kv_plane, item.col)
        k.cp_async_commit()
        k.fill(self.dv)
        k.fill(self.dk)

    def step(self, item: Item, row: Index, *, masked: bool, following: Index | None) -> None:
        """One block of queries at `row`, while the block at `following`, if there is one, is copied."""
        k, memory = self.k, self.memory
        k.cp_async_wait(pending=0)
        self._meet()
        k.load(self.delta, memory.delta_global[item.plane, row, 0])
        self.weigh(item, row, masked=masked)
        k.mma(self.products, memory.gradient[:], self._own_keys(memory.values[:]), accumulate=False)
        k.elementwise("sub", self.products, self.products, self.delta)
        k.elementwise("mul", self.products, self.scores, self.products)
        if following is not None and self.config.stages > 1:
            self._copy(memory.query[self.ring + 1], memory.q_global, item.plane, following)
            k.cp_async_commit()
        k.store(self._own_columns(memory.slopes[:]), self.products)
        self._meet()
        weights, slopes = self._own_columns(memory.weights[:]), self._own_columns(memory.slopes[:])
        k.mma(self.dv, weights, memory.gradient[:], a_transposed=True, transposed=True)
        self._meet()
        if following is not None:
            self._copy(memory.gradient[:], memory.do_global, item.plane, following)
            k.cp_async_commit()
        keys = memory.keys[:].part(col=self.column, cols=self.columns)
        k.mma(self.dq, memory.slopes[:], keys, transposed=True, accumulate=False)
        if following is not None:
            k.load(self.lse, memory.lse_global[item.plane, following, 0])
        k.store(memory.dq_global[item.plane, row, self.column], self.dq, reduce=True)
        k.mma(self.dk, slopes, memory.query[self.ring], a_transposed=True, transposed=True)
        if following is not None and self.config.stages == 1:
            self._meet()
            self._copy(memory.query[self.ring], memory.q_global, item.plane, following)
            k.cp_async_commit()
        self.ring.advance()

    def weigh(self, item: Item, row: Index, *, masked: bool) -> None:
        """P = exp(S - LSE), into shared memory too."""
        k, problem, memory = self.k, self.problem, self.memory
        k.mma(self.scores, memory.query[self.ring], self._own_keys(memory.keys[:]), accumulate=False)
        if masked:
            k.mask(
                self.scores,
                row=row,
                col=item.col + self.key,
                causal=problem.causal,
                limit=problem.seqlen_kv,
                diagonal=problem.diagonal,
            )
        k.elementwise("scale", self.exponent, self.lse, scalars=(LOG2_E,))
        k.elementwise("exp2_scaled_sub", self.scores, self.scores, self.exponent, scalars=(problem.scale * LOG2_E,))
        k.store(self._own_columns(memory.weights[:]), self.scores)

    def store(self, item: Item) -> None:
        """Scale dK and store both through the memory of K and V, so that lanes write 16 bytes side by side."""
        k, memory = self.k, self.memory
        k.elementwise("scale", self.dk, self.dk, scalars=(self.problem.scale,))
        self._meet()
        through = [self._own_keys(shared[:]) for shared in (memory.keys, memory.values)]
        for shared, registers in zip(through, (self.dk, self.dv), strict=True):
            k.store(shared, registers)
        self._meet()
        for shared, output in zip(through, memory.outputs, strict=True):
            k.load(self.rows, shared)
            k.store(output[item.plane, item.col + self.key, 0], self.rows)


def _passing_grid(rows: int, warps: int) -> tuple[int, int]:
    """Return the warps along rows and columns of a tile that goes from shared to global memory."""
    along = min(warps, rows // 16)
    return along, warps // along
