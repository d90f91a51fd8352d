"""A warp group of the backward pass on H100, which owns 64 keys: its rows of S^T, dP^T, dK and dV.

P and dS stay in registers as first operands of the products for dV and dK; dS goes to shared memory, too, where both
groups read all of it for dQ. Each block's products are issued so that one runs beside the arithmetic of another.
"""

from __future__ import annotations

from collections.abc import Mapping

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.backward.sm90_fa3_config import GROUP_ROWS, GROUPS, Fa3BackwardConfig
from heddle.kernels.attention.backward.sm90_fa3_memory import Memory
from heddle.kernels.attention.backward.sm90_fa3_producer import HANDOVER_WARPS, PARTIAL_EMPTY, PARTIAL_FULL
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E
from heddle.lang import Builder, Index, Item, RegisterHandle, SharedBox

SCORES, EPILOGUE = 1, 2
"""Named barriers of both groups: dS of a block is in shared memory; all are done with K, V and the last block."""
WARPS = GROUPS * GROUP_WARPS


class Consumer:
    """One warp group: keys [64 group, 64 group + 64) of the CTA's."""

    def __init__(
        self,
        k: Builder,
        problem: AttentionProblem,
        config: Fa3BackwardConfig,
        memory: Memory,
        group: int,
        items: Mapping[str, list[int]],
    ) -> None:
        self.k, self.problem, self.config, self.memory, self.group = k, problem, config, memory, group
        self.has_masked, self.has_plain = any(items["masked"]), any(items["plain"])
        self.has_more = any(items["more"])
        block, head = (GROUP_ROWS, config.tile_m), (GROUP_ROWS, problem.head_dim)
        self.scores, self.weights_gradient = self._tile("s", block), self._tile("dp", block)
        self.weights = self._tile("p", block, problem.dtype)
        self.scores_gradient = self._tile("ds", block, problem.dtype, over=self.weights_gradient)
        self.dk, self.dv = self._tile("dk", head), self._tile("dv", head)
        self.dq = self._tile("dq", self._dq_shape())
        self.lse, self.dpsum = (self._statistic(name) for name in ("lse", "dpsum"))

    def _tile(
        self, name: str, shape: tuple[int, int], dtype: str = "fp32", over: RegisterHandle | None = None
    ) -> RegisterHandle:
        return self.k.registers(f"{name}_{self.group}", shape, dtype, warps=(GROUP_WARPS, 1), overlays=over)

    def _statistic(self, name: str) -> RegisterHandle:
        return self.k.registers(
            f"{name}_{self.group}", (1, self.config.tile_m), "fp32", warps=(GROUP_WARPS, 1), spread="columns"
        )

    def _dq_shape(self) -> tuple[int, int]:
        """Of a group's part of dQ, or of its transpose."""
        rows, cols = self.memory.rows, self.memory.cols
        return (cols, rows) if self.config.dq == "swapped" else (rows, cols)

    def run(self) -> None:
        """The CTA's keys: all blocks of queries that see them, then dK and dV."""
        k = self.k
        self.memory.meet()
        for item in k.work():
            k.fill(self.dk)
            k.fill(self.dv)
            self.memory.pair_full.wait()
            self.blocks(item)
            k.elementwise("scale", self.dk, self.dk, scalars=(self.problem.scale,))
            if self.memory.tensors.shared_heads:
                self.add_gradients(item)
            else:
                self.store_gradients(item)

    def blocks(self, item: Item) -> None:
        """All blocks of queries; those that a causal mask cuts come first and may have a loop of their own."""
        k, step = self.k, self.config.tile_m
        if self.has_masked:
            for block in k.range(item.masked, name="masked"):
                self.step(item, item.first + block * step, causal=True)
        if self.has_plain and self.has_masked:
            with k.when(item.plain):
                for block in k.range(item.plain, name="plain"):
                    self.step(item, item.plain_first + block * step, causal=False)
        elif self.has_plain:
            for block in k.range(item.plain, name="plain"):
                self.step(item, item.plain_first + block * step, causal=False)

    def step(self, item: Item, query: Index, *, causal: bool) -> None:
        """One block of queries from `query` on."""
        k, memory, ring = self.k, self.memory, self.memory.ring
        self.multiply_scores()
        self.multiply_weights_gradient()
        k.mma_wait(pending=1)
        self.mask(item, query, causal)
        self.exponentials()
        k.load(self.dpsum, memory.outputs.statistic(ring))
        k.mma_wait(pending=0)
        self.differentiate()
        k.elementwise("cast", self.weights, self.scores)
        self.store_scores_gradient()
        k.mma(self.dv, self.weights, memory.outputs.rows(ring), transposed=True)
        k.mma_commit()
        k.fence()
        k.sync(SCORES, warps=WARPS)
        self.multiply_dq(memory.scores[ring])
        k.mma_wait(pending=1)  # dV
        memory.outputs.empty.arrive(ring, by="group")
        k.mma(self.dk, self.scores_gradient, memory.queries.rows(ring), transposed=True)
        k.mma_commit()
        k.mma_wait(pending=1)  # dQ
        self.hand_over()
        k.mma_wait(pending=0)
        memory.queries.empty.arrive(ring, by="group")
        ring.advance()

    def own(self, box: SharedBox) -> SharedBox:
        """The group's rows of K, V or where dK, dV are staged."""
        return box.part(row=self.group * GROUP_ROWS, rows=GROUP_ROWS)

    def multiply_scores(self) -> None:
        """Start S^T = K Q^T when the block of Q is there."""
        k, memory = self.k, self.memory
        memory.queries.full.wait(memory.ring)
        k.mma(self.scores, self.own(memory.keys()), memory.queries.rows(memory.ring), accumulate=False)
        k.mma_commit()

    def mask(self, item: Item, query: Index, causal: bool) -> None:
        """Leave out keys beyond the end and, if causal, queries before the key."""
        self.k.mask(
            self.scores,
            row=item.key + self.group * GROUP_ROWS,
            col=query,
            causal=causal,
            limit=self.problem.seqlen_kv,
            diagonal=self.problem.diagonal,
            transposed=True,
        )

    def multiply_weights_gradient(self) -> None:
        """Read LSE and start dP^T = V dO^T when the block of dO is there."""
        k, memory, ring = self.k, self.memory, self.memory.ring
        k.load(self.lse, memory.queries.statistic(ring))
        memory.outputs.full.wait(ring)
        k.mma(self.weights_gradient, self.own(memory.values()), memory.outputs.rows(ring), accumulate=False)
        k.mma_commit()

    def exponentials(self) -> None:
        """P^T = 2^(S^T scale log2(e) - LSE)."""
        scale = self.problem.scale * LOG2_E
        self.k.elementwise("exp2_scaled_sub", self.scores, self.scores, self.lse, scalars=(scale,))

    def differentiate(self) -> None:
        """dS = P (dP - rowsum(dO O))."""
        k, gradient = self.k, self.weights_gradient
        k.elementwise("sub", gradient, gradient, self.dpsum)
        k.elementwise("mul", gradient, gradient, self.scores)

    def store_scores_gradient(self) -> None:
        """Round dS, and store it where both groups read it."""
        self.k.elementwise("cast", self.scores_gradient, self.weights_gradient)
        columns = self.memory.scores[self.memory.ring].part(col=self.group * GROUP_ROWS, cols=GROUP_ROWS)
        self.k.store(columns, self.scores_gradient, transposed=True)

    def multiply_dq(self, gradient: SharedBox) -> None:
        """Start the group's part of dQ = dS K, or of dQ^T = K^T dS^T, from a block of dS."""
        k, keys = self.k, self.memory.key_columns(self.group)
        if self.config.dq == "swapped":
            k.mma(self.dq, keys, gradient, accumulate=False, a_transposed=True)
        else:
            first = self.own(gradient) if self.config.dq == "rows" else gradient
            k.mma(self.dq, first, keys, accumulate=False, transposed=True)
        k.mma_commit()

    def hand_over(self) -> None:
        """Put the group's part of dQ where the warp that adds it takes it, once that is done with the block before."""
        k, group = self.k, self.group
        k.sync(PARTIAL_EMPTY + group, warps=HANDOVER_WARPS)
        self.store_partial()
        k.fence()
        k.arrive(PARTIAL_FULL + group, warps=HANDOVER_WARPS)

    def store_partial(self) -> None:
        """Put the group's part of dQ into shared memory."""
        place = self.memory.partial[self.group][:]
        self.k.store(place, self.dq, transposed=self.config.dq == "swapped", thread_order=True)

    def store_gradients(self, item: Item) -> None:
        """dV and dK leave through the memory of V and K, once both groups are done with it; the last one stores."""
        k, memory = self.k, self.memory
        k.sync(EPILOGUE, warps=WARPS)
        k.store(self.own(memory.values()), self.dv)
        k.store(self.own(memory.keys()), self.dk)
        k.fence()
        if self.group < GROUPS - 1:
            k.arrive(EPILOGUE, warps=WARPS)
            return
        k.sync(EPILOGUE, warps=WARPS)
        memory.store_gradients(item)
        k.tma_store_wait(pending=0)

    def add_gradients(self, item: Item) -> None:
        """With heads that share keys: dV, then dK, are added in fp32 by bulk copies that the first group starts."""
        k, memory = self.k, self.memory
        for gradient, target in ((self.dv, memory.tensors.dv), (self.dk, memory.tensors.dk)):
            k.sync(EPILOGUE, warps=WARPS)
            for half in range(2):
                width = self.problem.head_dim // 2
                part = gradient.columns(half * width, width)
                k.store(memory.staged_rows(self.group, half), part, thread_order=True)
            k.fence()
            k.sync(EPILOGUE, warps=WARPS)
            if self.group == 0:
                memory.add_gradient(item, target)
                k.tma_store_wait(pending=0)
