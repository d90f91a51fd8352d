"""GEMM on H100 with FIBER: roles of wefts that hand fragments and sums to each other in shared vector registers.

One weft copies tiles of A and B into shared memory, four load A as fragments into the pool, one or two groups of four
multiply 64 rows each in lockstep (A from the pool, B from shared memory, fetched once for all four), four store. The
sum of a tile grows in registers of the multiplying weft; the last step of the chain alone writes the pool, so the next
tile is under way while this one is stored. Two groups take turns, so that one multiplies while the other waits to give
a stage back: lockstep instructions of different groups must come in one order in all subpartitions, and tokens in the
pool, one for each subpartition, keep it.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import UserError
from heddle.lang import Builder, Item, kernel

BLOCK_M = 64
"""Rows of a group of four wefts: 16 for each subpartition."""
TILE_K = 64
"""Columns of a tile in shared memory: 128 bytes of 16-bit elements, the swizzle."""
TEMPORARIES = 24
"""Registers of a role beside its tiles."""
GROUP = 4
"""Wefts of a lockstep group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberGemm:
    """C = A B^T with A [m, k] and B [n, k] of 16-bit elements, in tiles of 64 `groups` x `tile_n`, on `fiber_threads`.

    `stages`: tiles of A and B in shared memory. `groups`: of four wefts that multiply, 1 or 2.
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    tile_n: int = 128
    stages: int = 4
    groups: int = 2
    fiber_threads: int = 1

    @property
    def tile_m(self) -> int:
        """Rows of a tile."""
        return BLOCK_M * self.groups

    def items(self) -> dict[str, list[int]]:
        """Return the table of work items, one a tile, row by row. Raises UserError for what the kernel cannot do."""
        if self.k <= TILE_K:
            raise UserError(f"k is {self.k}; this kernel needs more than {TILE_K}")
        if self.groups not in (1, 2):
            raise UserError(f"{self.groups} groups multiply; allowed: 1, 2 (one a window)")
        tiles = [(row, col) for row in range(0, self.m, self.tile_m) for col in range(0, self.n, self.tile_n)]
        blocks = -(-self.k // TILE_K)
        return {
            "row": [row for row, _ in tiles],
            "col": [col for _, col in tiles],
            "k_blocks": [blocks] * len(tiles),
        }


class _Turns:
    """The order of the groups: `turn[g]` goes from group g to the next one; nothing with one group."""

    def __init__(self, k: Builder, groups: int) -> None:
        self.k, self.groups = k, groups
        numbers = range(groups if groups > 1 else 0)
        self.turn = [k.pool(f"turn_{g}", (BLOCK_M, 1), "fp32") for g in numbers]
        self.taken = [k.registers(f"taken_{g}", (BLOCK_M, 1), "fp32", warps=(GROUP, 1)) for g in numbers]

    def begin(self, group: int) -> None:
        """The last group lets the first one begin."""
        if group == self.groups - 1:
            self.give(group)

    def take(self, group: int) -> None:
        """Wait for the turn."""
        if self.turn:
            given = self.turn[group - 1][0]
            self.k.elementwise("copy", self.taken[group], given)
            self.k.set_busy_bit(given, "empty")

    def give(self, group: int) -> None:
        """Let the next group go on: its matrix instructions come after those that have issued."""
        if self.turn:
            self.k.fill(self.turn[group][0])
            self.k.set_busy_bit(self.turn[group][0], "full")

    def end(self, group: int) -> None:
        """The first group takes the turn that is left over."""
        if group == 0:
            self.take(group)


class _Roles:
    """What the roles share, and the code of each. `g` numbers the groups that multiply."""

    def __init__(self, k: Builder, p: FiberGemm) -> None:
        self.k, self.p = k, p
        groups, tile_n = range(p.groups), p.tile_n
        self.a_global, self.b_global = k.tensor("A", (p.m, p.k), p.dtype), k.tensor("B", (p.n, p.k), p.dtype)
        self.c_global = k.tensor("C", (p.m, p.n), p.dtype, role="output")
        self.a_shared = k.shared("a_shared", (p.tile_m, TILE_K), p.dtype, stages=p.stages)
        self.b_shared = k.shared("b_shared", (tile_n, TILE_K), p.dtype, stages=p.stages)
        self.ring, self.full = k.ring("ring", p.stages), k.barrier("full", arrivals=1, stages=p.stages)
        self.empty = k.barrier("empty", arrivals=GROUP * (1 + p.groups), stages=p.stages)
        self.a = [k.pool(f"a_{g}", (BLOCK_M, TILE_K), p.dtype) for g in groups]
        self.total = [k.pool(f"total_{g}", (BLOCK_M, tile_n), "fp32") for g in groups]
        self.partial = [k.registers(f"partial_{g}", (BLOCK_M, tile_n), "fp32", warps=(GROUP, 1)) for g in groups]
        self.out = k.registers("out", (BLOCK_M, tile_n), p.dtype, warps=(GROUP, 1))
        self.turns = _Turns(k, p.groups)

    def copy(self, item: Item) -> None:
        """Global to shared memory, as far ahead as the ring allows."""
        k, ring, full = self.k, self.ring, self.full
        for kb in k.range(item.k_blocks):
            self.empty.wait(ring, flip=True)
            full.expect(ring, bytes=self.a_shared.stage_bytes + self.b_shared.stage_bytes)
            k.tma_load(self.a_shared[ring], self.a_global[item.row, kb * TILE_K], full[ring])
            k.tma_load(self.b_shared[ring], self.b_global[item.col, kb * TILE_K], full[ring])
            ring.advance()

    def multiply(self, item: Item, g: int) -> None:
        """Add up the tile in own registers; the last block's last step hands it over."""
        k, partial, total = self.k, self.partial[g], self.total[g][0]
        for kb in k.range(item.k_blocks - 1):
            self._begin_block(g)
            k.mma(partial, self.a[g][0], self.b_shared[self.ring], first=kb)
            self._end_block(g)
        self._begin_block(g)
        k.mma(total, self.a[g][0], self.b_shared[self.ring], plus=partial)
        k.set_busy_bit(total, "full")
        self._end_block(g)

    def _begin_block(self, g: int) -> None:
        self.full.wait(self.ring)
        self.turns.take(g)

    def _end_block(self, g: int) -> None:
        self.k.set_busy_bit(self.a[g][0], "empty")
        self.turns.give(g)
        self.empty.arrive(self.ring)
        self.ring.advance()

    def fragments(self, item: Item) -> None:
        """Shared memory to the pool, for all groups."""
        k, ring = self.k, self.ring
        for _ in k.range(item.k_blocks):
            self.full.wait(ring)
            for g, fragments in enumerate(self.a):
                k.load(fragments[0], self.a_shared[ring].part(row=g * BLOCK_M, rows=BLOCK_M))
                k.set_busy_bit(fragments[0], "full")
            self.empty.arrive(ring)
            ring.advance()

    def store(self, item: Item) -> None:
        """Pool to global memory."""
        k = self.k
        for g, total in enumerate(self.total):
            k.elementwise("cast", self.out, total[0])
            k.set_busy_bit(total[0], "empty")
            k.store(self.c_global[item.row + g * BLOCK_M, item.col], self.out)


@kernel
def gemm_sm90_fiber(k: Builder, problem: FiberGemm) -> None:
    """Persistent over the tiles of C; every hand-over between roles is a pool tensor or an mbarrier."""
    k.flops = 2 * problem.m * problem.n * problem.k
    k.work_items(problem.items(), clusters=problem.fiber_threads)
    roles, groups = _Roles(k, problem), range(problem.groups)

    k.set_fiber_num(copy=1, **{f"multiply_{g}": GROUP for g in groups}, fragments=GROUP, store=GROUP)

    with k.role("copy", window=0, registers=TEMPORARIES):
        for item in k.work():
            roles.copy(item)

    for g in groups:
        with k.role(f"multiply_{g}", window=g, registers=problem.tile_n // 2 + TEMPORARIES):
            roles.turns.begin(g)
            for item in k.work():
                roles.multiply(item, g)
            roles.turns.end(g)

    with k.role("fragments", window=0, registers=TEMPORARIES):
        for item in k.work():
            roles.fragments(item)

    with k.role("store", window=1, registers=problem.tile_n // 4 + TEMPORARIES):
        for item in k.work():
            roles.store(item)
