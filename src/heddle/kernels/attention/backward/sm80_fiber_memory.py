"""Memory of the FIBER-native backward pass of A100, and the wefts that copy and load.

One weft copies blocks of Q and dO with row statistics into shared memory, K and V once. Wefts of three roles make
fragments of them: Q and dO as they lie, divided along the elements of a head, for S and dP; Q and dO turned, divided
along queries among two subpartitions each, for dK and dV. All of these meet once a block of queries, with those that
read statistics: then it has come, and the memory of the block before the last is free.
"""

from __future__ import annotations

from heddle.kernels.attention.backward.sm80_fiber_config import (
    BLOCK_HEAD,
    BLOCK_KEYS,
    GROUP,
    FiberBackward80Config,
)
from heddle.kernels.attention.backward.tensors import padded_queries
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Index, Item, RegisterHandle, SharedBox

TURNING = 2
"""Wefts that load Q or dO turned: each subpartition of two has half of the queries of a step."""
MEETING = 1
"""The barrier at which wefts that copy and load meet."""
STATISTIC_BYTES = 4
"""That a lane copies: a row statistic of one query."""


def second_operand(
    k: Builder, name: str, shape: tuple[int, int], dtype: str, wefts: tuple[int, int], config: FiberBackward80Config
) -> RegisterHandle:
    """Declare a second operand in the pool: divided among wefts of all subpartitions, or whole in each."""
    if config.copies:
        return k.pool(name, (GROUP * shape[0], shape[1]), dtype)[0]
    return k.pool(name, shape, dtype, read_by="all", wefts=wefts)[0]


class Memory:
    """Tensors in all three memories, and the code of the wefts that copy and load."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: FiberBackward80Config) -> None:
        self.k, self.problem, self.config = k, problem, config
        d, dtype, m = problem.head_dim, problem.dtype, config.tile_m
        self._declare_global()
        self.kv_shared = [k.shared(name, (config.tile_n, d), dtype) for name in ("k", "v")]
        self.blocks_shared = [k.shared(name, (m, d), dtype, stages=config.stages) for name in ("q", "do")]
        self.statistics_shared = [
            k.shared(f"{name}_shared", (1, m), "fp32", stages=config.stages)
            for name in ("lse", "dpsum")
            if not config.copies
        ]
        self.ring = k.ring("blocks", config.stages)
        blocks, parts = range(config.groups), range(d // BLOCK_HEAD)
        self.keys, self.values = (
            [k.pool(f"{name}_{b}", (BLOCK_KEYS, d), dtype)[0] for b in blocks] for name in ("keys", "values")
        )
        turned = (BLOCK_KEYS, BLOCK_HEAD)
        self.keys_turned = [
            [k.pool(f"keys_{b}_turned_{h}", turned, dtype, wefts=(1, GROUP))[0] for h in parts] for b in blocks
        ]
        self.queries, self.gradients = (
            second_operand(k, name, (m, d), dtype, (1, GROUP), config) for name in ("queries", "gradients")
        )
        self.queries_turned, self.gradients_turned = (
            second_operand(k, f"{name}_turned", (m, d), dtype, (TURNING, 1), config)
            for name in ("queries", "gradients")
        )
        self.meeting_wefts = 3 * GROUP if config.copies else 1 + 2 * TURNING + 2 * GROUP

    def _declare_global(self) -> None:
        k, problem = self.k, self.problem
        planes, d, dtype = problem.batch * problem.heads_q, problem.head_dim, problem.dtype
        queries = (planes, problem.seqlen_q, d)
        keys = (problem.batch * problem.heads_kv, problem.seqlen_kv, d)
        self.blocks_global = [k.tensor(name, queries, dtype) for name in ("Q", "dO")]
        self.kv_global = [k.tensor(name, keys, dtype) for name in ("K", "V")]
        statistics = (planes, 1, padded_queries(problem))
        self.statistics = [k.tensor(name, statistics, "fp32") for name in ("LSE_log2", "dPsum")]
        self.dq = k.tensor("dQ_accum", queries, "fp32", role="output")
        of_heads = (planes, problem.seqlen_kv, d)
        self.dk, self.dv = (k.tensor(name, of_heads, dtype, role="output") for name in ("dK_heads", "dV_heads"))

    def copy(self, item: Item, has_steady: bool) -> None:
        """K and V, and all blocks of Q and dO, as far ahead as there are stages."""
        k, m, ahead = self.k, self.config.tile_m, self.config.ahead
        for shared, source in zip(self.kv_shared, self.kv_global, strict=True):
            k.cp_async(shared[:], source[item.kv_plane, item.col, 0])
        k.cp_async_commit()
        for step in range(ahead):
            if step:
                with k.when(getattr(item, f"has_{step}")):
                    self._copy(item, item.first + step * m, step)
            else:
                self._copy(item, item.first, step)
            k.cp_async_commit()
        k.cp_async_wait(pending=ahead)
        self.meet()
        if has_steady:
            with k.when(item.steady):
                for block in k.range(item.steady, name="copy_steady"):
                    self._arrived()
                    self._copy(item, item.first + ahead * m + block * m, ahead)
                    self._next_copy()
        for _ in k.range(item.tail, name="copy_tail"):
            self._arrived()
            self._next_copy()
        self.meet()

    def _copy(self, item: Item, row: Index, ahead: int) -> None:
        for shared, source in zip(self.blocks_shared, self.blocks_global, strict=True):
            self.k.cp_async(shared[self.ring + ahead], source[item.plane, row, 0])
        for shared, source in zip(self.statistics_shared, self.statistics, strict=bool(self.statistics_shared)):
            target = shared[self.ring + ahead]
            self.k.cp_async(target, source[item.plane, 0, row], bytes_per_lane=STATISTIC_BYTES)

    def _arrived(self) -> None:
        """The oldest block has come; there is one group of copies a step, even if it is empty."""
        self.k.cp_async_wait(pending=self.config.ahead - 1)
        self.meet()

    def _next_copy(self) -> None:
        self.k.cp_async_commit()
        self.ring.advance()

    def meet(self) -> None:
        """What has been copied is there for all, and what was loaded may be overwritten."""
        self.k.sync(MEETING, warps=self.meeting_wefts)

    def load_rows(self, item: Item) -> None:
        """K, V and K turned once, Q and dO block by block."""
        self.meet()
        for b in range(self.config.groups):
            for fragments, shared in ((self.keys[b], self.kv_shared[0]), (self.values[b], self.kv_shared[1])):
                self._give(fragments, shared[:].part(row=b * BLOCK_KEYS, rows=BLOCK_KEYS))
            for h, fragments in enumerate(self.keys_turned[b]):
                place = {"row": b * BLOCK_KEYS, "rows": BLOCK_KEYS, "col": h * BLOCK_HEAD, "cols": BLOCK_HEAD}
                self._give(fragments, self.kv_shared[0][:].part(**place))
        for _ in self.k.range(item.steps, name="load"):
            self.meet()
            for fragments, shared in zip((self.queries, self.gradients), self.blocks_shared, strict=True):
                self._give(fragments, shared[self.ring], each=self.config.copies)
            self.ring.advance()
        self.meet()

    def load_turned(self, item: Item, *which: int) -> None:
        """Q (0) or dO (1) turned, or both, block by block."""
        turned = (self.queries_turned, self.gradients_turned)
        self.meet_late()
        for _ in self.k.range(item.steps, name=f"turn_{which[0]}"):
            self.meet()
            for operand in which:
                self._give(turned[operand], self.blocks_shared[operand][self.ring], each=self.config.copies)
            self.ring.advance()

    def meet_late(self) -> None:
        """Begin an item where each block is read after the meeting of the next one: products take it last."""
        self.meet()
        self.meet()

    def _give(self, fragments: RegisterHandle, source: SharedBox, *, each: bool = False) -> None:
        self.k.load(fragments, source, each=each)
        self.k.set_busy_bit(fragments, "full")
