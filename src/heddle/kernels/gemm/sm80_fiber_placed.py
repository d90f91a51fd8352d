"""GEMM on A100 with FIBER, operands where a placement says: to compare the paper's rule with others.

The paper puts A of products into subpartitions 0 and 1, by rows, and B into 2 and 3, by columns. A register is written
by wefts of its own subpartition, so wefts load where operands are to lie; and one instruction names one subpartition,
so each of the four wefts that multiply has code of its own, which names where its quarter of A lies. All else is as in
`sm80_fiber`: each operand becomes fragments once, bits order all hand-overs, and there is no barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from heddle.errors import UserError
from heddle.kernels.gemm.sm80_fiber import STEP_K, TEMPORARIES, FiberGemm80
from heddle.lang import Builder, Index, Item, RegisterHandle, Ring, SharedHandle, kernel

STEPS = 2
"""Steps of a block in shared memory; each has registers of its own in the pool."""
TILE_K = STEPS * STEP_K
"""Columns of a block of A and B in shared memory."""
LOAD_PACE = 5
"""Least cycles between instructions of a weft that loads: it has time, and mma.sync comes every 8 cycles."""

WEFTS = 4
ATOM_ROWS = 16
LOAD_REGISTERS = 24
Copy = Callable[[Item, Index | int, int], None]
"""Starts the copies of an item's block into the stage so far ahead."""
Fragments = Callable[[int], Iterable[tuple[RegisterHandle, int]]]
"""Gives the pool tensors of a step, each with its first row in shared memory."""
IDLE_REGISTERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where operands of mma.sync lie: the subpartition of each quarter of A's rows, and of each part of B's columns.

    B is divided into 1, 2 or 4 parts, in neighbouring subpartitions. `staggered`: weft q starts with part q of B, so
    that wefts that are in step ask different subpartitions.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    staggered: bool = False

    def label(self) -> str:
        """Return a short name, as in `A 0011 B 23 staggered`."""
        digits = ["".join(map(str, homes)) for homes in (self.a, self.b)]
        return f"A {digits[0]} B {digits[1]}" + (" staggered" if self.staggered else "")


PAPER = Placement(a=(0, 0, 1, 1), b=(2, 3))
"""A in subpartitions 0 and 1 by rows, B in 2 and 3 by columns (the paper, section on the read-port arbiter)."""
OWN_ROWS = Placement(a=(0, 1, 2, 3), b=(0, 1, 2, 3))
"""Each weft's rows of A in its own subpartition, B in all four: the native kernels of this project."""


class _Kernel:
    """Declarations that the roles share, and the code of each."""

    def __init__(self, k: Builder, p: FiberGemm80, placement: Placement) -> None:
        self.k, self.p, self.placement = k, p, placement
        self.a_global, self.b_global = k.tensor("A", (p.m, p.k), p.dtype), k.tensor("B", (p.n, p.k), p.dtype)
        self.c_global = k.tensor("C", (p.m, p.n), p.dtype, role="output")
        self.quarter = p.tile_m // WEFTS
        self.a = [
            k.pool(f"a{q}", (self.quarter, STEP_K), p.dtype, stages=STEPS, read_by="all", wefts=(1, 1))
            for q in range(WEFTS)
        ]
        self.b = k.pool("b", (p.tile_n, STEP_K), p.dtype, stages=STEPS, read_by="all", wefts=(len(placement.b), 1))

    def load_a(self, home: int) -> None:
        """Copy and load the quarters of A that lie in a subpartition."""
        quarters = [q for q in range(WEFTS) if self.placement.a[q] == home]
        shape = (self.quarter * len(quarters), TILE_K)
        shared = self.k.shared(f"a_shared{home}", shape, self.p.dtype, stages=self.p.stages)
        ring = self.k.ring(f"a_ring{home}", self.p.stages)

        def copy(item: Item, block: Index | int, ahead: int) -> None:
            source = self.a_global[item.row + quarters[0] * self.quarter, block * TILE_K]
            self.k.cp_async(shared[ring + ahead], source)

        def fragments(step: int) -> Iterator[tuple[RegisterHandle, int]]:
            for number, q in enumerate(quarters):
                yield self.a[q][step], number * self.quarter

        self._load(copy, fragments, shared, ring)

    def load_b(self) -> None:
        """Copy and load B: each weft its part."""
        shared = self.k.shared("b_shared", (self.p.tile_n, TILE_K), self.p.dtype, stages=self.p.stages)
        ring = self.k.ring("b_ring", self.p.stages)

        def copy(item: Item, block: Index | int, ahead: int) -> None:
            self.k.cp_async(shared[ring + ahead], self.b_global[item.col, block * TILE_K])

        self._load(copy, lambda step: iter([(self.b[step], 0)]), shared, ring)

    def _load(self, copy: Copy, fragments: Fragments, shared: SharedHandle, ring: Ring) -> None:
        """Global to shared memory, as far ahead as the ring allows, and from there to the pool."""
        k, ahead = self.k, self.p.stages - 1

        def hand_over() -> None:
            for step in range(STEPS):
                for target, row in fragments(step):
                    part = shared[ring].part(row=row, rows=target.tile.rows, col=step * STEP_K, cols=STEP_K)
                    k.load(target, part)
                    k.set_busy_bit(target, "full")
            ring.advance()

        for item in k.work():
            for stage in range(ahead):
                copy(item, stage, stage)
                k.cp_async_commit()
            for kb in k.range(item.k_blocks - ahead):
                copy(item, kb + ahead, ahead)
                k.cp_async_commit()
                k.cp_async_wait(pending=ahead)
                hand_over()
            k.cp_async_wait(pending=0)
            for _ in k.range(ahead):
                hand_over()

    def multiply(self, q: int) -> None:
        """Add up a quarter of the rows of a tile in own registers and store it."""
        k, p = self.k, self.p
        total = k.registers(f"total{q}", (self.quarter, p.tile_n), "fp32", warps=(1, 1))
        start = q % len(self.placement.b) if self.placement.staggered else 0
        for item in k.work():
            k.fill(total)
            for _ in k.range(item.k_blocks):
                for step in range(STEPS):
                    k.mma(total, self.a[q][step], self.b[step], start=start)
                    k.set_busy_bit(self.a[q][step], "empty")
                    k.set_busy_bit(self.b[step], "empty")
            k.store(self.c_global[item.row + q * self.quarter, item.col], total)


@kernel
def gemm_sm80_fiber_placed(k: Builder, p: FiberGemm80, placement: Placement) -> None:
    """Persistent over the tiles of C, on one FIBER-thread an SM."""
    _check(p, placement)
    k.flops = 2 * p.m * p.n * p.k
    k.work_items(p.items(TILE_K), clusters=p.fiber_threads)
    shared = _Kernel(k, p, placement)
    wefts, idle = _wefts(placement)
    k.set_fiber_num(**wefts)
    for name in wefts:
        if name in idle:
            with k.role(name, registers=IDLE_REGISTERS):
                pass
        elif name == "load_b":
            with k.role(name, registers=LOAD_REGISTERS, pace=LOAD_PACE):
                shared.load_b()
        elif name.startswith("load_a"):
            with k.role(name, registers=LOAD_REGISTERS, pace=LOAD_PACE):
                shared.load_a(int(name[-1]))
        else:
            with k.role(name, registers=shared.quarter * p.tile_n // 32 + TEMPORARIES):
                shared.multiply(int(name[-1]))


def _wefts(placement: Placement) -> tuple[Mapping[str, int], set[str]]:
    """Return the roles with their wefts, each in its subpartition, and those that only fill up."""
    roles = [(f"load_a{home}", 1, home) for home in sorted(set(placement.a))]
    roles += [("load_b", len(placement.b), placement.b[0]), *((f"multiply{q}", 1, q) for q in range(WEFTS))]
    wefts, idle = {"begin": 1}, {"begin"}
    for name, count, first in roles:
        gap = (first - sum(wefts.values())) % WEFTS
        if gap:
            wefts[f"rest_{name}"] = gap
            idle.add(f"rest_{name}")
        wefts[name] = count
    return wefts, idle


def _check(p: FiberGemm80, placement: Placement) -> None:
    neighbours = tuple(range(placement.b[0], placement.b[0] + len(placement.b))) if placement.b else ()
    if placement.b != neighbours or len(placement.b) not in (1, 2, WEFTS) or neighbours[-1] >= WEFTS:
        raise UserError(f"B lies in 1, 2 or 4 neighbouring subpartitions; got {placement.b}")
    rising = all(one <= other for one, other in zip(placement.a, placement.a[1:], strict=False))
    if not rising or len(placement.a) != WEFTS or not set(placement.a) <= set(range(WEFTS)):
        raise UserError(
            f"A lies in subpartitions 0 to 3, one for each quarter of its rows, ascending; got {placement.a}"
        )
    if p.tile_m % (WEFTS * ATOM_ROWS) or p.tile_n % (WEFTS * ATOM_ROWS):
        raise UserError(f"tiles are multiples of {WEFTS * ATOM_ROWS}; got {p.tile_m} x {p.tile_n}")
