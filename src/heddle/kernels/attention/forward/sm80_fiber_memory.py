"""How the FIBER-native attention of A100 gets Q, K and V from global memory into shared registers.

Each of four wefts copies its own rows of a tile into shared memory and loads them from there, as fragments, into its
own subpartition. So it waits for nobody but its own copies; full and empty bits order the fragments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from heddle.kernels.attention.forward.sm80_fiber_config import BLOCK_M, GROUP, Fiber80Config
from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Index, Item, RegisterHandle


class Memory:
    """Tensors in all three memories, and the code of the wefts that load."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: Fiber80Config) -> None:
        self.k, self.config = k, config
        layout, d, dtype = planes(problem, config), problem.head_dim, problem.dtype
        queries = (layout.count, layout.rows, d)
        keys = (problem.batch * problem.heads_kv, problem.seqlen_kv, d)
        self.q_global = k.tensor("Q", queries, dtype)
        self.kv_global = [k.tensor(name, keys, dtype) for name in ("K", "V")]
        self.o_global = k.tensor("O", queries, dtype, role="output")
        self.q_shared = k.shared("q", (config.tile_m, d), dtype)
        self.kv_shared = [k.shared(name, (config.tile_n, d), dtype, stages=config.stages) for name in ("k", "v")]
        self.rings = [k.ring(f"{name}_ring", config.stages) for name in ("k", "v")]
        self.queries = [k.pool(f"queries_{b}", (BLOCK_M, d), dtype)[0] for b in range(config.groups)]
        self.declare_keys_and_values(problem)

    def declare_keys_and_values(self, problem: AttentionProblem) -> None:
        """Declare both in the pool: divided along what weft-level products sum over, or along the columns."""
        rows, columns = (GROUP, 1), (1, GROUP)
        parts = (columns, rows) if self.config.weft_level else (rows, columns)
        shape = (self.config.tile_n, problem.head_dim)
        self.keys, self.values = (
            self.k.pool(name, shape, problem.dtype, read_by="all", wefts=part)[0]
            for name, part in zip(("keys", "values"), parts, strict=True)
        )

    def load_keys(self, item: Item, has_steady: bool) -> None:
        """Q once, and K block by block."""
        self.copy_queries(item)
        self._first_copies(item, 0)
        self.k.cp_async_wait(pending=self.config.ahead)
        self.give_queries()
        self._blocks(item, 0, self.keys, has_steady)

    def copy_queries(self, item: Item) -> None:
        """Start the copy of Q, a group of its own."""
        for b, _ in enumerate(self.queries):
            rows = self.q_shared[:].part(row=b * BLOCK_M, rows=BLOCK_M)
            self.k.cp_async(rows, self.q_global[item.q_plane, item.row + b * BLOCK_M, 0])
        self.k.cp_async_commit()

    def give_queries(self) -> None:
        """Load the copied Q into the pool."""
        for b, query in enumerate(self.queries):
            self.k.load(query, self.q_shared[:].part(row=b * BLOCK_M, rows=BLOCK_M))
            self.k.set_busy_bit(query, "full")

    def load_values(self, item: Item, has_steady: bool) -> None:
        """V block by block."""
        self.load_blocks(item, 1, has_steady)

    def load_blocks(self, item: Item, which: int, has_steady: bool) -> None:
        """K (0) or V (1) block by block."""
        self._first_copies(item, which)
        self._blocks(item, which, (self.keys, self.values)[which], has_steady)

    def _first_copies(self, item: Item, which: int) -> None:
        """The blocks that are copied ahead, as far as the tile has so many."""
        for stage in range(self.config.ahead):
            if stage:
                with self.k.when(getattr(item, f"has_{stage}")):
                    self._copy(item, which, item.last - stage * self.config.tile_n, stage)
            else:
                self._copy(item, which, item.last, stage)
            self.k.cp_async_commit()

    def _copy(self, item: Item, which: int, row: Index, ahead: int) -> None:
        source = self.kv_global[which][item.kv_plane, row, 0]
        self.k.cp_async(self.kv_shared[which][self.rings[which] + ahead], source)

    def _blocks(self, item: Item, which: int, fragments: RegisterHandle, has_steady: bool) -> None:
        k, config, ahead = self.k, self.config, self.config.ahead
        name = "kv"[which]
        if has_steady:
            with k.when(item.steady):
                for block in k.range(item.steady, name=f"{name}_steady"):
                    row = item.last - ahead * config.tile_n + block * -config.tile_n
                    self._block(which, fragments, partial(self._copy, item, which, row, ahead))
        for _ in k.range(item.tail, name=f"{name}_tail"):
            self._block(which, fragments)

    def _block(self, which: int, fragments: RegisterHandle, copy: Callable[[], None] | None = None) -> None:
        """Start a copy; the oldest one to the pool. There is one group of copies a block, even if it is empty."""
        k = self.k
        if copy:
            copy()
        k.cp_async_commit()
        k.cp_async_wait(pending=self.config.ahead)
        k.load(fragments, self.kv_shared[which][self.rings[which]])
        k.set_busy_bit(fragments, "full")
        self.rings[which].advance()
