"""GEMM on A100 with FIBER: A and B become fragments once, in shared vector registers; four wefts multiply.

Four wefts load: each copies its quarter of the rows of a tile of A and of B into shared memory, and from there, as
fragments, into registers of its own subpartition. Four wefts multiply a quarter of the rows of C each: A from their own
subpartition, B from all four. Nothing is loaded twice, and no barrier is needed: bits order each fragment. Several
FIBER-threads on an SM take turns without knowing it: while one stores its tile the others multiply.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import UserError
from heddle.kernels.gemm.shape import GemmProblem, ceil_div
from heddle.kernels.gemm.sm80 import lane_bytes
from heddle.lang import Builder, Index, Item, kernel

LANES = 32
GROUP = 4
"""Wefts of a role: one a subpartition."""
STEP_K = 16
"""Columns that one mma.sync sums over."""
STEPS = 2
"""Steps of a block in shared memory; each has registers of its own in the pool."""
TILE_K = STEPS * STEP_K
"""Columns of a block of A and B in shared memory."""
LOAD_REGISTERS = 32
"""Addresses and counters of a weft that copies and loads."""
LOAD_PACE = 5
"""Least cycles between instructions of a weft that loads: it has time, and mma.sync comes every 8 cycles."""
TEMPORARIES = 24
"""Registers of a weft that multiplies and stores, beside its sums."""


def pool_registers(tile_m: int, tile_n: int) -> int:
    """Return the registers of a subpartition that a tile takes: fragments of a block, sums, and what the roles need."""
    fragments = (tile_m + tile_n) * TILE_K // 2 // (LANES * GROUP)
    return fragments + tile_m * tile_n // (LANES * GROUP) + LOAD_REGISTERS + TEMPORARIES


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberGemm80:
    """C = A B^T with A [m, k] and B [n, k] of 16-bit elements, in tiles of `tile_m` x `tile_n`, on `fiber_threads`.

    `stages`: blocks of A and B in shared memory.
    """

    m: int
    n: int
    k: int
    dtype: str = "fp16"
    tile_m: int = 128
    tile_n: int = 128
    stages: int = 4
    fiber_threads: int = 1

    def items(self) -> dict[str, list[int]]:
        """Return the table of work items, one a tile, row by row. Raises UserError for what the kernel cannot do."""
        if self.stages < 2:
            raise UserError(f"stages is {self.stages}; at least 2: one is copied while another is loaded")
        tiles = [(row, col) for row in range(0, self.m, self.tile_m) for col in range(0, self.n, self.tile_n)]
        blocks = max(ceil_div(self.k, TILE_K), self.stages)  # blocks beyond k are zeros
        return {
            "row": [row for row, _ in tiles],
            "col": [col for _, col in tiles],
            "k_blocks": [blocks] * len(tiles),
        }


class _Roles:
    """What the roles share, and the code of each."""

    def __init__(self, k: Builder, p: FiberGemm80) -> None:
        self.k, self.p = k, p
        self.problem = GemmProblem(m=p.m, n=p.n, k=p.k, dtype=p.dtype)
        self.a_global, self.b_global = k.tensor("A", (p.m, p.k), p.dtype), k.tensor("B", (p.n, p.k), p.dtype)
        self.c_global = k.tensor("C", (p.m, p.n), p.dtype, role="output")
        self.a_shared = k.shared("a_shared", (p.tile_m, TILE_K), p.dtype, stages=p.stages)
        self.b_shared = k.shared("b_shared", (p.tile_n, TILE_K), p.dtype, stages=p.stages)
        self.ring = k.ring("ring", p.stages)
        self.a = k.pool("a", (p.tile_m, STEP_K), p.dtype, stages=STEPS)
        self.b = k.pool("b", (p.tile_n, STEP_K), p.dtype, stages=STEPS, read_by="all")
        self.total = k.registers("total", (p.tile_m, p.tile_n), "fp32", warps=(GROUP, 1))

    def load(self, item: Item) -> None:
        """Global to shared memory, as far ahead as the ring allows, and from there to the pool."""
        k, ahead = self.k, self.p.stages - 1
        for stage in range(ahead):
            self._copy(item, stage, stage)
        for kb in k.range(item.k_blocks - ahead):
            self._copy(item, kb + ahead, ahead)
            k.cp_async_wait(pending=ahead)
            self._fragments()
        k.cp_async_wait(pending=0)
        for _ in k.range(ahead):
            self._fragments()

    def _copy(self, item: Item, block: Index | int, ahead: int) -> None:
        k, stage, width = self.k, self.ring + ahead, lane_bytes(self.problem)
        k.cp_async(self.a_shared[stage], self.a_global[item.row, block * TILE_K], bytes_per_lane=width)
        k.cp_async(self.b_shared[stage], self.b_global[item.col, block * TILE_K], bytes_per_lane=width)
        k.cp_async_commit()

    def _fragments(self) -> None:
        for step in range(STEPS):
            for fragments, block in ((self.a, self.a_shared), (self.b, self.b_shared)):
                self.k.load(fragments[step], block[self.ring].part(col=step * STEP_K, cols=STEP_K))
                self.k.set_busy_bit(fragments[step], "full")
        self.ring.advance()

    def multiply(self, item: Item) -> None:
        """Add up the tile in own registers and store it."""
        k = self.k
        k.fill(self.total)
        for _ in k.range(item.k_blocks):
            for step in range(STEPS):
                k.mma(self.total, self.a[step], self.b[step])
                k.set_busy_bit(self.a[step], "empty")
                k.set_busy_bit(self.b[step], "empty")
        k.store(self.c_global[item.row, item.col], self.total)


@kernel
def gemm_sm80_fiber(k: Builder, p: FiberGemm80) -> None:
    """Persistent over the tiles of C."""
    k.flops = 2 * p.m * p.n * p.k
    k.work_items(p.items(), clusters=p.fiber_threads)
    roles = _Roles(k, p)

    k.set_fiber_num(begin=1, load=GROUP, multiply=GROUP)

    with k.role("begin", registers=TEMPORARIES):  # the weft that a FIBER-thread starts with
        pass

    with k.role("load", registers=LOAD_REGISTERS, pace=LOAD_PACE):
        for item in k.work():
            roles.load(item)

    with k.role("multiply", registers=p.tile_m * p.tile_n // (LANES * GROUP) + TEMPORARIES):
        for item in k.work():
            roles.multiply(item)
