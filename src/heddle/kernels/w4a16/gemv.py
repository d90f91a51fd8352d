"""AQLM for few tokens on every GPU: a warp multiplies a column of W with a token by look-ups and fused multiply-adds.

The form of the public AQLM kernels, which multiply token by token: a turn of 2,048 elements of the token lies in shared
memory, each lane loads eight codes at once, looks up their entries (1x16: in L2, past L1; 2x8: in shared memory, in
eight copies) and adds up products of pairs; lanes meet at the end. Nothing is loaded ahead of a turn.
"""

from __future__ import annotations

from heddle.kernels._rounding import ceil_div
from heddle.kernels.w4a16.items import WORD
from heddle.kernels.w4a16.shape import BOOKS, COPIES, ENTRIES, W4Config, W4Problem
from heddle.lang import Builder, GlobalBox, Item, RegisterHandle, SharedBox, kernel

BLOCK = 256
"""Elements of k for which each lane has one code."""
TURN = 8 * BLOCK
"""Elements of a token in shared memory at a time: eight codes of a lane, 16 bytes."""
THREAD_REGISTERS = 64
"""Eight entries, their addresses, codes, elements of the token; the original, compiled, is bounded by 1,024 threads."""


@kernel
def aqlm_gemv(k: Builder, problem: W4Problem, config: W4Config, items: dict[str, list[int]]) -> None:
    """Turn by turn: the token into shared memory, codes, entries, products."""
    k.flops = problem.flops
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    column = Column(k, problem, config)
    whole, rest = divmod(problem.k, TURN)
    with k.role("worker", warps=config.warps, registers=THREAD_REGISTERS):
        for item in k.work():
            column.start(item)
            if whole:
                for turn in k.range(whole, name="turn"):
                    column.stage(column.a[item.row, turn * TURN], column.codes[item.col, turn * (TURN // WORD)])
                    column.multiply(column.weights)
            if rest:
                column.stage(column.a[item.row, whole * TURN], column.codes[item.col, whole * (TURN // WORD)])
                column.multiply(column.last)
            column.store(item)


class Column:
    """What the warps of a CTA have of their columns, and what they do in a turn."""

    def __init__(self, k: Builder, problem: W4Problem, config: W4Config) -> None:
        self.k, self.warps, self.books = k, config.warps, BOOKS[problem.scheme]
        self.a = k.tensor("A", (problem.m, problem.k), problem.dtype)
        self.codes = k.tensor("R", (problem.n, problem.k // WORD), "uint16")
        self.scales = k.tensor("T", (problem.n, 1), problem.dtype)
        self.book = k.tensor("K", (ENTRIES[problem.scheme], WORD), problem.dtype)
        self.c = k.tensor("C", (problem.m, problem.n), problem.dtype, role="output")
        self.token = k.shared("token", (1, TURN), problem.dtype)
        self.book_shared = None
        if self.books > 1:
            self.book_shared = k.shared("book", (ENTRIES[problem.scheme], COPIES * WORD), problem.dtype)
        self.numbers = self._tile("numbers", TURN // WORD, "uint16")
        self.scale, self.out = self._tile("scale", 1, problem.dtype), self._tile("out", 1, problem.dtype)
        self.wide, self.total = self._tile("wide", 1, "fp32"), self._tile("total", 1, "fp32")
        self.parts = [
            k.registers(f"x{i}", (1, BLOCK), problem.dtype, warps=(self.warps, 1), spread="rows") for i in (0, 1)
        ]
        whole, rest = divmod(problem.k, TURN)
        self.weights = self.last = self._tile(
            "weights", TURN if whole else ceil_div(rest, BLOCK) * BLOCK, problem.dtype
        )
        if whole and rest:
            self.last = self._tile("last", ceil_div(rest, BLOCK) * BLOCK, problem.dtype)

    def _tile(self, name: str, cols: int, dtype: str) -> RegisterHandle:
        return self.k.registers(name, (self.warps, cols), dtype, warps=(self.warps, 1), spread="rows")

    @property
    def codebook(self) -> SharedBox | GlobalBox:
        """Where entries are looked up."""
        return self.book_shared[:] if self.book_shared else self.book[0, 0]

    def start(self, item: Item) -> None:
        """Begin the sums, and copy codebooks that lie in shared memory."""
        k = self.k
        k.fill(self.total)
        k.load(self.scale, self.scales[item.col, 0])
        if self.book_shared:
            k.copy_through(self.book_shared[:].part(col=0, cols=WORD), self.book[0, 0], copies=COPIES)

    def stage(self, token: GlobalBox, codes: GlobalBox) -> None:
        """Put a turn of the token into shared memory when all warps are done with the one before; load codes."""
        k = self.k
        k.sync()
        k.copy_through(self.token[:], token)
        k.sync()
        k.load(self.numbers, codes)

    def multiply(self, weights: RegisterHandle) -> None:
        """Look up the entries of a turn, and multiply them with the token block by block."""
        k = self.k
        k.look_up_rows(weights, self.numbers, self.codebook, books=self.books)
        for number, first in enumerate(range(0, weights.tile.cols, BLOCK)):
            part = self.parts[number % 2]
            k.load(part, self.token[:].part(col=first, cols=BLOCK))
            k.dot(self.total, weights.columns(first, BLOCK), part)

    def store(self, item: Item) -> None:
        """Add up what the lanes have, scale it and write it."""
        k = self.k
        k.row_reduce("sum", self.total, self.total)
        k.elementwise("cast", self.wide, self.scale)
        k.elementwise("mul", self.total, self.total, self.wide)
        k.elementwise("cast", self.out, self.total)
        k.store(self.c[item.row, item.col], self.out, transposed=True)
