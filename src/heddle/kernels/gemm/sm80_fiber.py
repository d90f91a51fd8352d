"""GEMM on A100 with FIBER: A and B become fragments once, in shared vector registers; four wefts multiply.

Wefts of two roles load, four for A and four for B: each copies its quarter of a block into shared memory, and from
there, as fragments, into registers of its own subpartition: a quarter of the rows of A, and of B a quarter of what is
summed over. Four wefts multiply a quarter of the rows of C each, by weft-level products in lockstep: A from their own
subpartition, B from one of the four, once for all of them. Nothing is loaded twice, and no barrier is needed: bits
order each fragment. A register has its next datum while the products of the other three quarters of a block run, so
there is one block of each in the pool.

Where registers are shared inside a subpartition only, each has a copy of B, loaded from shared memory by its own weft,
and each weft multiplies by itself. The four that copy B meet before they load what others have copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heddle.errors import UserError
from heddle.kernels._limits import check_item_count
from heddle.kernels._rounding import ceil_div
from heddle.kernels._warp import LANES
from heddle.kernels.gemm.fiber_epilogue import FiberEpilogue, FiberProduct
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.gemm.sm80 import lane_bytes
from heddle.lang import Builder, Index, Item, RegisterHandle, kernel

Sharing = Literal["sm", "subpartition"]
"""Among whom operands in registers are shared (`sharing_scope` of a machine)."""

GROUP = 4
"""Wefts of a role: one a subpartition."""
STEP_K = 16
"""Columns that one product sums over."""
TILE_K = GROUP * STEP_K
"""Columns of a block of A and B: a step in each subpartition."""
LOAD_REGISTERS = 24
"""Addresses and counters of a weft that copies and loads."""
CHUNK = 32
"""Columns that an epilogue works on at a time."""
MEETING = 2
"""Named barrier at which the wefts that load copies of an operand meet (1: see `w4a16.codebook`)."""
TEMPORARIES = 24
"""Registers of a weft that multiplies and stores, beside its sums."""


def sum_registers(tile_m: int, tile_n: int, problem: GemmProblem | None = None) -> int:
    """Return the registers that a weft that multiplies has: its sums, and what the epilogue and storing them take."""
    registers = tile_m * tile_n // (LANES * GROUP) + TEMPORARIES
    if problem is None or problem.epilogue == "none":
        return registers
    beside = CHUNK + (CHUNK // 2 if problem.gated else min(tile_n, problem.head_dim) // 2)
    return registers + tile_m * beside // (LANES * GROUP)


def fragment_registers(tile_m: int, tile_n: int, sharing: Sharing = "sm") -> int:
    """Return the registers of a subpartition that a block of A and of B and the roles that load it take."""
    copies = GROUP if sharing == "subpartition" else 1
    return (tile_m + copies * tile_n) * TILE_K // 2 // (LANES * GROUP) + 2 * LOAD_REGISTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberGemm80(FiberProduct):
    """The product in tiles of `tile_m` x `tile_n`.

    `stages`: blocks of A and B in shared memory. `fiber_threads`: of the whole chip, one an SM at most: products of two
    could reach the matrix units of the subpartitions in different orders. `sharing`: "subpartition" has a copy of B in
    each.
    """

    dtype: str = "fp16"
    tile_m: int = 128
    tile_n: int = 128
    stages: int = 4
    fiber_threads: int = 1
    sharing: Sharing = "sm"

    def items(self, tile_k: int = TILE_K) -> dict[str, list[int]]:
        """Return the table of work items, one a tile, row by row. Raises UserError for what the kernel cannot do."""
        if self.stages < 2:
            raise UserError(f"stages is {self.stages}; at least 2: one is copied while another is loaded")
        check_item_count(
            f"the FIBER-native kernel cuts {self.m} x {self.n}",
            ceil_div(self.m, self.tile_m) * ceil_div(self.n, self.tile_n),
        )
        tiles = [(row, col) for row in range(0, self.m, self.tile_m) for col in range(0, self.n, self.tile_n)]
        blocks = max(ceil_div(self.k, tile_k), self.stages)  # blocks beyond k are zeros
        return {
            "row": [row for row, _ in tiles],
            "col": [col for _, col in tiles],
            "k_blocks": [blocks] * len(tiles),
            **self.item_columns([col for _, col in tiles]),
        }


class Operand:
    """A or B: its blocks in shared memory, its fragments in the pool, and the code of the wefts that load it."""

    def __init__(
        self,
        k: Builder,
        p: FiberGemm80,
        name: str,
        parts: tuple[int, int],
        read_by: Literal["own", "all"],
        tile_k: int = TILE_K,
    ) -> None:
        self.copies = read_by == "own" and parts[1] > 1
        rows, tile_rows = (p.m, p.tile_m) if name == "A" else (p.n, p.tile_n)
        self.k, self.ahead, self.tile_k = k, p.stages - 1, tile_k
        self.width = lane_bytes(GemmProblem(m=p.m, n=p.n, k=p.k, dtype=p.dtype))
        self.tensor = k.tensor(name, (rows, p.k), p.dtype)
        self.shared = k.shared(f"{name.lower()}_shared", (tile_rows, tile_k), p.dtype, stages=p.stages)
        self.ring = k.ring(f"{name.lower()}_ring", p.stages)
        spread: Literal["operand", "fragments"] = "operand" if p.sharing == "subpartition" else "fragments"
        shape = (tile_rows, tile_k)
        self.fragments = k.pool(name.lower(), shape, p.dtype, read_by=read_by, wefts=parts, spread=spread)[0]

    def load(self, item: Item, row: Index) -> None:
        """Global to shared memory, as far ahead as the ring allows, and from there to the pool."""
        k, ahead = self.k, self.ahead
        for stage in range(ahead):
            self._copy(row, stage, stage)
        for kb in k.range(item.k_blocks - ahead):
            if self.copies:
                self._meet(pending=ahead - 1)
            self._copy(row, kb + ahead, ahead)
            if not self.copies:
                k.cp_async_wait(pending=ahead)
            self._fragments()
        self._meet(pending=0)
        for _ in k.range(ahead):
            self._fragments()
        if self.copies:
            k.sync(MEETING)  # before the next tile's copies

    def _meet(self, pending: int) -> None:
        """Wait for own copies, and where others have a part in what is loaded, for theirs."""
        self.k.cp_async_wait(pending=pending)
        if self.copies:
            self.k.sync(MEETING)

    def _copy(self, row: Index, block: Index | int, ahead: int) -> None:
        source = self.tensor[row, block * self.tile_k]
        self.k.cp_async(self.shared[self.ring + ahead], source, bytes_per_lane=self.width)
        self.k.cp_async_commit()

    def _fragments(self) -> None:
        self.k.load(self.fragments, self.shared[self.ring])
        self.k.set_busy_bit(self.fragments, "full")
        self.ring.advance()


@kernel
def gemm_sm80_fiber(k: Builder, p: FiberGemm80) -> None:
    """Persistent over the tiles of C."""
    k.flops = 2 * p.m * p.n * p.k
    k.work_items(p.items(), clusters=p.fiber_threads)
    a = Operand(k, p, "A", (GROUP, 1), "own")
    own = p.sharing == "subpartition"
    b = Operand(k, p, "B", (1, GROUP), "own" if own else "all")
    epilogue = FiberEpilogue(k, p.problem, (p.tile_m, CHUNK), (GROUP, 1), min(p.tile_n, p.head_dim) // CHUNK)
    chunk = k.registers("chunk", (p.tile_m, CHUNK), "fp32", warps=(GROUP, 1)) if p.epilogue != "none" else None
    total = k.registers("total", (p.tile_m, p.tile_n), "fp32", warps=(GROUP, 1))

    k.set_fiber_num(begin=1, load_a=GROUP, load_b=GROUP, multiply=GROUP)

    with k.role("begin", registers=GROUP):  # the weft that a FIBER-thread starts with
        pass

    with k.role("load_a", window=0, registers=LOAD_REGISTERS):
        for item in k.work():
            a.load(item, item.row)

    with k.role("load_b", window=0, registers=LOAD_REGISTERS):
        for item in k.work():
            b.load(item, item.col)

    with k.role("multiply", window=1, registers=sum_registers(p.tile_m, p.tile_n, p.problem)):
        for item in k.work():
            k.fill(total)
            for _ in k.range(item.k_blocks):
                k.mma(total, a.fragments, b.fragments)
                k.set_busy_bit(a.fragments, "empty")
                k.set_busy_bit(b.fragments, "empty")
            if chunk is None:
                k.store(epilogue.c_global[item.row, item.col], total)
            else:
                _store(k, p, item, epilogue, chunk, total)


def _store(
    k: Builder, p: FiberGemm80, item: Item, epilogue: FiberEpilogue, chunk: RegisterHandle, total: RegisterHandle
) -> None:
    """A tile on its way out, some columns at a time; A100 has no registers for sums of two tiles."""
    problem = p.problem
    col = item.output_col if problem.gated else item.col
    rotated = item.rotated if problem.rotated else False
    for first in range(0, min(p.tile_n, p.head_dim), CHUNK):
        epilogue.load(item.row, item.head_col, first)
    for first in range(0, p.tile_n, CHUNK):
        k.elementwise("copy", chunk, total.columns(first, CHUNK))
        target = epilogue.c_global[item.row, col + first // (1 + problem.gated)]
        k.store(target, epilogue.apply(chunk, first, rotated=rotated))
