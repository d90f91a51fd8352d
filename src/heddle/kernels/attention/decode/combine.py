"""Decoding, second launch: O from the splits, each weighted by its share of the sum.

A CTA takes four rows in the open kernel, a lane 16 bytes of one of them at a time; here a row lies over half a warp
(head size 128), so that two warps have four rows. The partial sums of a row lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterator

from heddle.kernels._warp import LANES
from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.lang import Builder, GlobalHandle, Index, Item, RegisterHandle, kernel

LANE_COLUMNS = 8
WARPS = 2
SUMMED = 16
"""Logarithms that are loaded side by side."""
ADDED = 4
"""Partial sums that are loaded side by side: the compiler unrolls such a loop by four."""
LOWEST = -1e30
REGISTERS = 168
"""Of a thread: four parts of a row in flight, O, and what addresses and logarithms take."""


def rows_per_cta(head_dim: int) -> int:
    """Return the rows of a CTA."""
    return WARPS * LANES * LANE_COLUMNS // min(head_dim, LANES * LANE_COLUMNS)


@kernel
def decode_combine(k: Builder, problem: DecodeProblem, items: dict[str, list[int]]) -> None:
    """Find the logarithm of the whole sum of each row, then add up the parts."""
    k.flops = 2 * problem.rows * problem.head_dim * problem.num_splits
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    rows = Rows(k, problem)
    with k.role("rows", warps=WARPS, registers=REGISTERS):
        for item in k.work():
            rows.whole_sum(item)
            rows.add(item)


class Rows:
    """The rows of a CTA."""

    def __init__(self, k: Builder, problem: DecodeProblem) -> None:
        self.k, self.problem = k, problem
        count, d = rows_per_cta(problem.head_dim), problem.head_dim
        self.parts = k.tensor("O_partial", (problem.rows, problem.num_splits * d), "fp32")
        self.logs = k.tensor("LSE_partial", (problem.rows, problem.num_splits), "fp32")
        self.o = k.tensor("O", (problem.rows, d), problem.dtype, role="output")
        self.count = count
        side = min(SUMMED, problem.num_splits)
        self.log = [self._tile(f"log{i}", 1) for i in range(side)]
        self.part = [self._tile(f"part{i}", d) for i in range(min(ADDED, problem.num_splits))]
        self.total, self.highest, self.sum = self._tile("o", d), self._tile("max", 1), self._tile("sum", 1)
        self.before, self.weight = self._tile("before", 1), self._tile("weight", 1)

    def _tile(self, name: str, cols: int) -> RegisterHandle:
        lanes = min(LANES, self.problem.head_dim // LANE_COLUMNS)
        return self.k.registers(name, (self.count, cols), "fp32", warps=(WARPS, 1), spread="rows", row_lanes=lanes)

    def _groups(self, size: int) -> Iterator[tuple[Index | int, int]]:
        """Yield (first split, how many) for loops over groups of `size` splits and for what is left."""
        whole, rest = divmod(self.problem.num_splits, size)
        if whole > 1:
            for group in self.k.range(whole, name=f"splits{size}"):
                yield group * size, size
        elif whole:
            yield 0, size
        if rest:
            yield whole * size, rest

    def _load(
        self, tiles: list[RegisterHandle], source: GlobalHandle, item: Item, first: Index | int, cols: int
    ) -> None:
        for index, tile in enumerate(tiles):
            self.k.load(tile, source[item.row, (first + index) * cols])

    def whole_sum(self, item: Item) -> None:
        """`highest` becomes the base-2 logarithm of the sum over all splits."""
        k = self.k
        k.fill(self.highest, LOWEST)
        k.fill(self.sum)
        for first, count in self._groups(SUMMED):
            logs = self.log[:count]
            self._load(logs, self.logs, item, first, 1)
            k.elementwise("copy", self.before, self.highest)
            for log in logs:
                k.elementwise("max", self.highest, self.highest, log)
            k.elementwise("sub", self.before, self.before, self.highest)
            k.elementwise("exp2", self.before, self.before)
            k.elementwise("mul", self.sum, self.sum, self.before)
            for log in logs:
                k.elementwise("sub", log, log, self.highest)
                k.elementwise("exp2", log, log)
                k.elementwise("add", self.sum, self.sum, log)
        k.elementwise("log2", self.sum, self.sum)
        k.elementwise("add", self.highest, self.highest, self.sum)

    def add(self, item: Item) -> None:
        """O is the sum of the parts times 2 to the power of their logarithm less that of the whole."""
        k, d = self.k, self.problem.head_dim
        k.fill(self.total)
        for first, count in self._groups(ADDED):
            parts, logs = self.part[:count], self.log[:count]
            self._load(parts, self.parts, item, first, d)
            self._load(logs, self.logs, item, first, 1)
            for part, log in zip(parts, logs, strict=True):
                k.elementwise("sub", self.weight, log, self.highest)
                k.elementwise("exp2", self.weight, self.weight)
                k.elementwise("fma", self.total, part, self.weight, self.total)
        k.store(self.o[item.row, 0], self.total)
