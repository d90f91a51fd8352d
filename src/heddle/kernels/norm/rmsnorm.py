"""RMS normalisation: a warp has a whole row in its registers, reads it once and writes it once."""

from __future__ import annotations

from heddle.kernels._rounding import ceil_div
from heddle.kernels._warp import LANES, REGISTER_BYTES
from heddle.kernels.norm.shape import EPSILON, NormConfig, NormProblem
from heddle.lang import Builder, GlobalHandle, Item, RegisterHandle, kernel

BLOCK = 256
"""Columns that are worked on together: eight of each lane, which are 16 bytes."""
WORKING_REGISTERS = 56
"""Of a thread beside its part of the row: two blocks of weights, two of products, sums, addresses."""


def row_registers(problem: NormProblem) -> int:
    """Return the registers in which a thread has its part of a row."""
    return blocks(problem) * BLOCK * problem.element_bytes // (LANES * REGISTER_BYTES)


def blocks(problem: NormProblem) -> int:
    """Return the blocks of a row; the last may lie partly outside."""
    return ceil_div(problem.hidden, BLOCK)


@kernel
def rmsnorm(k: Builder, problem: NormProblem, config: NormConfig, items: dict[str, list[int]]) -> None:
    """Each element of a row over the root of their mean square, times its weight; a residual is added before."""
    k.flops = problem.flops
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    shape, dtype = (problem.rows, problem.hidden), problem.dtype
    x, weight = k.tensor("X", shape, dtype), k.tensor("W", (1, problem.hidden), dtype)
    other = k.tensor("R", shape, dtype) if problem.residual else None
    total = k.tensor("S", shape, dtype, role="output") if problem.residual else None
    y = k.tensor("Y", shape, dtype, role="output")
    rows = Rows(k, problem, config, weight)
    with k.role("row", warps=config.warps, registers=row_registers(problem) + WORKING_REGISTERS):
        for item in k.work():
            k.load(rows.row, x[item.row, 0])
            if other is not None and total is not None:
                rows.add(item, other, total)
            rows.square()
            rows.store(item, y)


class Rows:
    """The rows of a CTA, in registers."""

    def __init__(self, k: Builder, problem: NormProblem, config: NormConfig, weight: GlobalHandle) -> None:
        self.k, self.problem, self.config, self.weight = k, problem, config, weight
        self.firsts = range(0, blocks(problem) * BLOCK, BLOCK)
        cols = len(self.firsts) * BLOCK
        self.row = self._tile("x", config.warps, cols, problem.dtype)
        self.wide = [self._tile(f"wide{i}", config.warps, BLOCK, "fp32") for i in range(2)]
        self.squares = self._tile("squares", config.warps, BLOCK, "fp32")
        self.scale = self._tile("scale", config.warps, 1, "fp32")
        self.parts = [self._tile(f"part{i}", config.warps, BLOCK, problem.dtype) for i in range(2)]
        self.weights = [self._tile(f"weight{i}", 1, BLOCK, problem.dtype) for i in range(2)]
        self.factor = self._tile("factor", 1, BLOCK, "fp32")

    def _tile(self, name: str, rows: int, cols: int, dtype: str) -> RegisterHandle:
        return self.k.registers(name, (rows, cols), dtype, warps=(self.config.warps, 1), spread="rows")

    def add(self, item: Item, other: GlobalHandle, total: GlobalHandle) -> None:
        """Add the residual block by block, the next one on its way, and write the sum."""
        k = self.k
        k.load(self.parts[0], other[item.row, 0])
        for index, col in enumerate(self.firsts):
            part, block = self.parts[index % 2], self.row.columns(col, BLOCK)
            if col + BLOCK < self.row.tile.cols:
                k.load(self.parts[(index + 1) % 2], other[item.row, col + BLOCK])
            k.elementwise("add", block, block, part)
            k.store(total[item.row, col], block)

    def square(self) -> None:
        """The factor of each row: one over the root of its mean square."""
        k, scale = self.k, self.scale
        k.fill(self.squares)
        for index, col in enumerate(self.firsts):
            wide = self.wide[index % 2]
            k.elementwise("cast", wide, self.row.columns(col, BLOCK))
            k.elementwise("fma", self.squares, wide, wide, self.squares)
        k.row_reduce("sum", scale, self.squares)
        k.elementwise("scale", scale, scale, scalars=(1.0 / self.problem.hidden,))
        k.elementwise("add", scale, scale, scalars=(EPSILON,))
        k.elementwise("rsqrt", scale, scale)

    def store(self, item: Item, y: GlobalHandle) -> None:
        """Scale and weigh the row block by block, weights one block ahead."""
        k = self.k
        k.load(self.weights[0], self.weight[0, 0])
        for index, col in enumerate(self.firsts):
            wide = self.wide[index % 2]
            if col + BLOCK < self.row.tile.cols:
                k.load(self.weights[(index + 1) % 2], self.weight[0, col + BLOCK])
            k.elementwise("cast", wide, self.row.columns(col, BLOCK))
            k.elementwise("mul", wide, wide, self.scale)
            k.elementwise("cast", self.factor, self.weights[index % 2])
            k.elementwise("mul", wide, wide, self.factor)
            k.store(y[item.row, col], wide)
