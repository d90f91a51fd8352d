"""Epilogue: the accumulator goes to C through shared memory and bulk stores, or by plain stores."""

from __future__ import annotations

from heddle.ir.dtypes import dtype_bytes
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.lang import Builder, GlobalHandle, Index, Item, RegisterHandle

STORE_ROW_BYTES = 128
"""A bulk store with the 128-byte swizzle writes boxes of at most 128 bytes a row."""
STORE_STAGE_BYTES = 16384
"""Staging memory of one bulk store; two are in flight."""
TMA_ALIGNMENT_BYTES = 16
"""Rows of a tensor that TMA reads or writes begin at multiples of 16 bytes (CUDA driver API, tensor maps)."""


def staged_columns(config: GemmConfig, dtype: str, rows: int) -> int:
    """Return the columns that one bulk store covers: a divisor of tile_n that fits the row and the staging limits."""
    size = dtype_bytes(dtype)
    limit = min(config.tile_n, STORE_ROW_BYTES // size, STORE_STAGE_BYTES // (rows * size))
    return next(cols for cols in range(limit, 0, -8) if config.tile_n % cols == 0)


def uses_tma_store(problem: GemmProblem) -> bool:
    """Return whether rows of C are aligned for bulk stores."""
    return problem.n * problem.element_bytes % TMA_ALIGNMENT_BYTES == 0


class TileStore:
    """Stores accumulators of `rows` rows to C: chunk by chunk through two buffers, or directly if C is unaligned."""

    def __init__(
        self,
        k: Builder,
        problem: GemmProblem,
        config: GemmConfig,
        c_global: GlobalHandle,
        *,
        rows: int,
        name: str = "out",
    ) -> None:
        self.k, self.config, self.c_global = k, config, c_global
        self.by_tma = uses_tma_store(problem)
        self.cols = staged_columns(config, problem.dtype, rows)
        if self.by_tma:
            self.out = k.shared(name, (rows, self.cols), problem.dtype, stages=2)
            self.ring = k.ring(f"{name}_ring", 2)

    def store(self, acc: RegisterHandle, row: Index, item: Item, barrier: int) -> None:
        """Store `acc` at (row, item.col); the role's warps meet at named barrier `barrier`."""
        if not self.by_tma:
            self.k.store(self.c_global[row, item.col], acc)
            return
        k = self.k
        for col in range(0, self.config.tile_n, self.cols):
            k.tma_store_wait(pending=1)
            k.sync(barrier)
            k.store(self.out[self.ring], acc.columns(col, self.cols))
            k.fence()
            k.sync(barrier)
            k.tma_store(self.c_global[row, item.col + col], self.out[self.ring])
            self.ring.advance()

    def drain(self) -> None:
        """Wait until shared memory may be given up."""
        if self.by_tma:
            self.k.tma_store_wait(pending=0)
