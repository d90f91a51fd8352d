"""GEMM on B200 with FIBER: fragments of A in the pool, B in shared memory, sums in tensor memory.

One weft copies tiles of A and B into shared memory, four load A as fragments into the pool, four multiply 128 rows in
lockstep, four store. The sums of a tile grow in one of two places of tensor memory, so that one is stored while the
next tile grows in the other. A token in the pool says that a tile's last product has been issued; the bits of its
columns say when the sums are there, and when they have been read.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import UserError
from heddle.kernels._limits import check_item_count
from heddle.kernels._rounding import ceil_div
from heddle.kernels.gemm.fiber_epilogue import FiberEpilogue, FiberProduct
from heddle.lang import Builder, Item, kernel

TILE_M = 128
"""Rows of a tile: 32 for each subpartition, a row a lane."""
TILE_K = 64
"""Columns of a tile in shared memory: 128 bytes of 16-bit elements, the swizzle."""
GROUP = 4
"""Wefts of a lockstep group."""
SLOTS = 2
"""Places of sums in tensor memory."""
CHUNK = 32
"""Columns of sums that are read and given back together."""
TEMPORARIES = 16
"""Registers of a role beside its tiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberGemm(FiberProduct):
    """The product in tiles of 128 x `tile_n`, on `fiber_threads`.

    `stages`: tiles of A and B in shared memory; `fragments`: tiles of A in the pool.
    """

    tile_n: int = 256
    stages: int = 4
    fragments: int = 2
    fiber_threads: int = 1

    def items(self) -> dict[str, list[int]]:
        """Return the table of work items: two tiles each, the second of them none at the end of an odd number."""
        check_item_count(
            f"the FIBER-native kernel cuts {self.m} x {self.n}",
            ceil_div(self.m, TILE_M) * ceil_div(self.n, self.tile_n),
        )
        tiles = [(row, col) for row in range(0, self.m, TILE_M) for col in range(0, self.n, self.tile_n)]
        first, second = tiles[::2], tiles[1::2]
        more = [1] * len(second) + [0] * (len(first) - len(second))
        second += [(0, 0)] * (len(first) - len(second))
        blocks = ceil_div(self.k, TILE_K)
        if blocks % self.fragments or blocks < 2 * self.fragments:
            raise UserError(
                f"k is {self.k}; this kernel takes it in {self.fragments} blocks of {TILE_K} at a time, twice or more"
            )
        columns: dict[str, list[int]] = {}
        for slot, chosen in enumerate((first, second)):
            columns[f"row{slot}"], columns[f"col{slot}"] = [row for row, _ in chosen], [col for _, col in chosen]
            columns |= self.item_columns(columns[f"col{slot}"], str(slot))
        rounds = blocks // self.fragments
        columns |= {"second": more, "rounds": [rounds] * len(first), "middle": [rounds - 2] * len(first)}
        return columns


class _Roles:
    """What the roles share, and the code of each for one tile, whose sums lie in place `slot`."""

    def __init__(self, k: Builder, p: FiberGemm) -> None:
        self.k, self.p = k, p
        self.a_global, self.b_global = k.tensor("A", (p.m, p.k), p.dtype), k.tensor("B", (p.n, p.k), p.dtype)
        span = min(p.tile_n, p.head_dim)
        self.epilogue = FiberEpilogue(k, p.problem, (TILE_M, CHUNK), (GROUP, 1), span // CHUNK)
        self.a_shared = k.shared("a_shared", (TILE_M, TILE_K), p.dtype, stages=p.stages)
        self.b_shared = k.shared("b_shared", (p.tile_n, TILE_K), p.dtype, stages=p.stages)
        self.ring, self.full = k.ring("ring", p.stages), k.barrier("full", arrivals=1, stages=p.stages)
        self.empty = k.barrier("empty", arrivals=2 * GROUP, stages=p.stages)
        self.a = k.pool("a", (TILE_M, TILE_K), p.dtype, stages=p.fragments)
        self.total = [k.tensor_memory(f"total_{slot}", (TILE_M, p.tile_n), "fp32") for slot in range(SLOTS)]
        self.issued = [k.token(f"issued_{slot}") for slot in range(SLOTS)]
        self.part = [k.registers(f"part_{i}", (TILE_M, CHUNK), "fp32", warps=(GROUP, 1)) for i in range(2)]

    def copy(self, item: Item, slot: int) -> None:
        """Global to shared memory, as far ahead as the ring allows."""
        k, ring, full, depth = self.k, self.ring, self.full, self.p.fragments
        row, col = getattr(item, f"row{slot}"), getattr(item, f"col{slot}")
        for kb in k.range(item.rounds):
            for i in range(depth):
                self.empty.wait(ring, flip=True)
                full.expect(ring, bytes=self.a_shared.stage_bytes + self.b_shared.stage_bytes)
                at = kb * (depth * TILE_K) + i * TILE_K
                k.tma_load(self.a_shared[ring], self.a_global[row, at], full[ring])
                k.tma_load(self.b_shared[ring], self.b_global[col, at], full[ring])
                ring.advance()

    def fragments(self, item: Item, slot: int) -> None:
        """Shared memory to the pool."""
        k, ring = self.k, self.ring
        for _ in k.range(item.rounds):
            for i in range(self.p.fragments):
                self.full.wait(ring)
                k.load(self.a[i], self.a_shared[ring])
                k.set_busy_bit(self.a[i], "full")
                self.empty.arrive(ring)
                ring.advance()

    def multiply(self, item: Item, slot: int) -> None:
        """Add up a tile in tensor memory; the last product holds it, and the token says that it was the last."""
        k, last = self.k, self.p.fragments - 1
        for i in range(self.p.fragments):
            self.product(slot, i, accumulate=i > 0, give_back=i > 0)
        with k.when(item.middle):
            for _ in k.range(item.middle):
                for i in range(self.p.fragments):
                    self.product(slot, i)
        for i in range(self.p.fragments):
            self.product(slot, i, last=i == last)
        self.empty.arrive(self.ring.previous, read=self.a[last])
        self.issued[slot].give()

    def product(
        self, slot: int, i: int, *, accumulate: bool = True, last: bool = False, give_back: bool = True
    ) -> None:
        """The product of one block; the stage of the block before it is given back."""
        k, total, ring = self.k, self.total[slot][:], self.ring
        self.full.wait(ring)
        k.mma(total, self.a[i], self.b_shared[ring], accumulate=accumulate)
        k.set_busy_bit(self.a[i], "empty")
        if last:
            k.set_busy_bit(total, "full")
        if give_back:
            self.empty.arrive(ring.previous, read=self.a[i - 1])
        ring.advance()

    def store(self, item: Item, slot: int) -> None:
        """Tensor to global memory, by way of the epilogue, whose cosines and sines are there before the sums."""
        k, p, problem = self.k, self.p, self.p.problem
        row, col = getattr(item, f"row{slot}"), getattr(item, f"{'output_' if problem.gated else ''}col{slot}")
        rotated = getattr(item, f"rotated{slot}") if problem.rotated else False
        for first in range(0, min(p.tile_n, p.head_dim), CHUNK):
            self.epilogue.load(row, getattr(item, f"head_col{slot}"), first)
        self.issued[slot].take()
        for first in range(0, p.tile_n, CHUNK):
            part, columns = self.part[first // CHUNK % 2], self.total[slot][:].columns(first, CHUNK)
            k.load(part, columns)
            k.set_busy_bit(columns, "empty")
            target = self.epilogue.c_global[row, col + first // (1 + problem.gated)]
            k.store(target, self.epilogue.apply(part, first, rotated=rotated))


@kernel
def gemm_sm100_fiber(k: Builder, problem: FiberGemm) -> None:
    """Persistent over pairs of tiles of C."""
    k.flops = 2 * problem.m * problem.n * problem.k
    k.work_items(problem.items(), clusters=problem.fiber_threads)
    roles = _Roles(k, problem)
    k.set_fiber_num(copy=1, fragments=GROUP, multiply=GROUP, store=GROUP)
    windows = {"copy": (0, TEMPORARIES), "fragments": (0, TEMPORARIES), "multiply": (0, TEMPORARIES)}
    windows["store"] = (1, 3 * CHUNK + min(problem.tile_n, problem.head_dim) // 2 + TEMPORARIES)
    for name, (window, registers) in windows.items():
        with k.role(name, window=window, registers=registers):
            for item in k.work():
                getattr(roles, name)(item, 0)
                with k.when(item.second):
                    getattr(roles, name)(item, 1)
