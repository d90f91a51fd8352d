"""GEMM on H100 with FIBER: roles of wefts that hand fragments and sums to each other in shared vector registers.

One weft copies tiles of A and B into shared memory, four load A as fragments into the pool, four multiply in lockstep
(A from the pool, B from shared memory, fetched once for all four), four store. The sum of a tile grows in registers of
the multiplying weft; the last step of the chain alone writes the pool, so the next tile is under way while this one is
stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import UserError
from heddle.lang import Builder, kernel

TILE_M = 64
"""Rows of a tile: 16 for each of the four subpartitions."""
TILE_K = 64
"""Columns of a tile in shared memory: 128 bytes of 16-bit elements, the swizzle."""
TEMPORARIES = 24
"""Registers of a role beside its tiles."""
ELEMENT_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberGemm:
    """C = A B^T with A [m, k] and B [n, k] of 16-bit elements, in tiles of 64 x `tile_n`, on `fiber_threads` SMs.

    `stages`: tiles of A and B in shared memory; `a_stages`, `sum_stages`: of the pool.
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    tile_n: int = 128
    stages: int = 4
    fiber_threads: int = 1

    def items(self) -> dict[str, list[int]]:
        """Return the table of work items, one a tile, row by row. Raises UserError if k has fewer than two steps."""
        if self.k <= TILE_K:
            raise UserError(f"k is {self.k}; this kernel needs more than {TILE_K}")
        tiles = [(row, col) for row in range(0, self.m, TILE_M) for col in range(0, self.n, self.tile_n)]
        blocks = -(-self.k // TILE_K)
        return {
            "row": [row for row, _ in tiles],
            "col": [col for _, col in tiles],
            "k_blocks": [blocks] * len(tiles),
        }


@kernel
def gemm_sm90_fiber(k: Builder, problem: FiberGemm) -> None:
    """Persistent over the tiles of C; every hand-over between roles is a pool tensor or an mbarrier."""
    p, tile_n = problem, problem.tile_n
    k.flops = 2 * p.m * p.n * p.k
    k.work_items(p.items(), clusters=p.fiber_threads)
    a_global, b_global = k.tensor("A", (p.m, p.k), p.dtype), k.tensor("B", (p.n, p.k), p.dtype)
    c_global = k.tensor("C", (p.m, p.n), p.dtype, role="output")
    a_shared = k.shared("a_shared", (TILE_M, TILE_K), p.dtype, stages=p.stages)
    b_shared = k.shared("b_shared", (tile_n, TILE_K), p.dtype, stages=p.stages)
    ring, full = k.ring("ring", p.stages), k.barrier("full", arrivals=1, stages=p.stages)
    empty = k.barrier("empty", arrivals=8, stages=p.stages)
    a = k.pool("a", (TILE_M, TILE_K), p.dtype)
    total = k.pool("total", (TILE_M, tile_n), "fp32")
    partial = k.registers("partial", (TILE_M, tile_n), "fp32", warps=(4, 1))
    out = k.registers("out", (TILE_M, tile_n), p.dtype, warps=(4, 1))

    k.set_fiber_num(copy=1, multiply=4, fragments=4, store=4)

    with k.role("copy", window=0, registers=TEMPORARIES):
        for item in k.work():
            for kb in k.range(item.k_blocks):
                empty.wait(ring, flip=True)
                full.expect(ring, bytes=a_shared.stage_bytes + b_shared.stage_bytes)
                k.tma_load(a_shared[ring], a_global[item.row, kb * TILE_K], full[ring])
                k.tma_load(b_shared[ring], b_global[item.col, kb * TILE_K], full[ring])
                ring.advance()

    with k.role("multiply", window=0, registers=tile_n // 2 + TEMPORARIES):
        for item in k.work():
            for kb in k.range(item.k_blocks - 1):
                full.wait(ring)
                k.mma(partial, a[0], b_shared[ring], first=kb)
                k.set_busy_bit(a[0], "empty")
                empty.arrive(ring)
                ring.advance()
            full.wait(ring)
            k.mma(total[0], a[0], b_shared[ring], plus=partial)
            k.set_busy_bit(a[0], "empty")
            k.set_busy_bit(total[0], "full")
            empty.arrive(ring)
            ring.advance()

    with k.role("fragments", window=1, registers=TEMPORARIES):
        for item in k.work():
            for _ in k.range(item.k_blocks):
                full.wait(ring)
                k.load(a[0], a_shared[ring])
                k.set_busy_bit(a[0], "full")
                empty.arrive(ring)
                ring.advance()

    with k.role("store", window=1, registers=tile_n // 4 + TEMPORARIES):
        for item in k.work():
            k.elementwise("cast", out, total[0])
            k.set_busy_bit(total[0], "empty")
            k.store(c_global[item.row, item.col], out)
