"""RMS normalisation: a warp has a whole row in its registers, reads it once and writes it once."""

from __future__ import annotations

from heddle.kernels._rounding import ceil_div
from heddle.kernels._warp import LANES, REGISTER_BYTES
from heddle.kernels.norm.shape import EPSILON, NormConfig, NormProblem
from heddle.lang import Builder, GlobalHandle, Index, RegisterHandle, RegisterPart, RegisterQuarter, kernel

BLOCK = 256
"""Columns that are worked on together: eight of each lane, which are 16 bytes."""
WORKING_REGISTERS = 56
"""Of a thread beside its part of the row: two blocks of weights, two of products, sums, addresses."""


def row_registers(problem: NormProblem) -> int:
    """Return the registers in which a thread has its part of a row."""
    return blocks(problem) * BLOCK * problem.element_bytes // (LANES * REGISTER_BYTES)


def needed_registers(problem: NormProblem, config: NormConfig) -> int:
    """Return the registers of a thread: its part of the row, and of residual and weights if they are loaded whole."""
    return row_registers(problem) * (2 + problem.residual if config.early else 1) + WORKING_REGISTERS


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
    rows = (EarlyRows if config.early else Rows)(k, problem, config.warps, weight)
    row = rows.whole_row("x")
    parts = rows.parts() if problem.residual else []
    with k.role("row", warps=config.warps, registers=needed_registers(problem, config)):
        for item in k.work():
            k.load(row, x[item.row, 0])
            rows.begin(other, item.row, parts)
            if other is not None and total is not None:
                rows.add(row, other, total, item.row, parts)
            rows.square(row)
            rows.store(row, y, item.row)


class Rows:
    """What the warps of a role have in registers beside their rows, and what they do with a row, block by block.

    `suffix`: of the names of tiles. `factor_rows`: of the tile that weights are widened into.
    """

    def __init__(
        self, k: Builder, problem: NormProblem, warps: int, weight: GlobalHandle, suffix: str = "", factor_rows: int = 1
    ) -> None:
        self.k, self.problem, self.warps, self.weight, self.suffix = k, problem, warps, weight, suffix
        self.firsts = range(0, blocks(problem) * BLOCK, BLOCK)
        self.wide = [self._tile(f"wide{i}", warps, BLOCK, "fp32") for i in range(2)]
        self.squares = self._tile("squares", warps, BLOCK, "fp32")
        self.scale = self._tile("scale", warps, 1, "fp32")
        self.factor = self._tile("factor", factor_rows, BLOCK, "fp32")
        self.declare_weights()

    def declare_weights(self) -> None:
        """Declare two blocks of weights: one is used while the next is on its way."""
        self.weights = [self._tile(f"weight{i}", 1, BLOCK, self.problem.dtype) for i in range(2)]

    def _tile(self, name: str, rows: int, cols: int, dtype: str) -> RegisterHandle:
        return self.k.registers(name + self.suffix, (rows, cols), dtype, warps=(self.warps, 1), spread="rows")

    def whole_row(self, name: str) -> RegisterHandle:
        """Declare a tile of a row for each warp."""
        return self._tile(name, self.warps, len(self.firsts) * BLOCK, self.problem.dtype)

    def block(self, name: str) -> RegisterHandle:
        """Declare a tile of a block of each row."""
        return self._tile(name, self.warps, BLOCK, self.problem.dtype)

    def parts(self) -> list[RegisterHandle]:
        """Declare what the residual is loaded into: two blocks."""
        return [self.block(f"part{i}") for i in range(2)]

    def begin(self, other: GlobalHandle | None, at: Index, parts: list[RegisterHandle]) -> None:
        """Start what loads go with that of the row: the first block of the residual."""
        if other is not None:
            self.k.load(parts[0], other[at, 0])

    def add(
        self, row: RegisterHandle, other: GlobalHandle, total: GlobalHandle, at: Index, parts: list[RegisterHandle]
    ) -> None:
        """Add the residual block by block, the next one on its way, and write the sum."""
        k = self.k
        for index, col in enumerate(self.firsts):
            part, block = parts[index % 2], row.columns(col, BLOCK)
            if col + BLOCK < row.tile.cols:
                k.load(parts[(index + 1) % 2], other[at, col + BLOCK])
            k.elementwise("add", block, block, part)
            k.store(total[at, col], block)

    def square(self, row: RegisterHandle) -> None:
        """The factor of each row: one over the root of its mean square."""
        k, scale = self.k, self.scale
        k.fill(self.squares)
        for index, col in enumerate(self.firsts):
            wide = self.wide[index % 2]
            k.elementwise("cast", wide, row.columns(col, BLOCK))
            k.elementwise("fma", self.squares, wide, wide, self.squares)
        k.row_reduce("sum", scale, self.squares)
        k.elementwise("scale", scale, scale, scalars=(1.0 / self.problem.hidden,))
        k.elementwise("add", scale, scale, scalars=(EPSILON,))
        k.elementwise("rsqrt", scale, scale)

    def store(self, row: RegisterHandle, y: GlobalHandle, at: Index) -> None:
        """Scale and weigh the row block by block."""
        k = self.k
        self.load_weights(0)
        for index, col in enumerate(self.firsts):
            wide = self.wide[index % 2]
            self.load_weights(index + 1)
            k.elementwise("cast", wide, row.columns(col, BLOCK))
            k.elementwise("mul", wide, wide, self.scale)
            k.elementwise("cast", self.factor, self.block_of_weights(index))
            k.elementwise("mul", wide, wide, self.factor)
            k.store(y[at, col], wide)

    def load_weights(self, index: int) -> None:
        """Load a block of weights, if there is one."""
        if index < len(self.firsts):
            self.k.load(self.weights[index % 2], self.weight[0, self.firsts[index]])

    def block_of_weights(self, index: int) -> RegisterHandle | RegisterPart | RegisterQuarter:
        """Return where a block of weights is."""
        return self.weights[index % 2]


class EarlyRows(Rows):
    """The same with residual and weights loaded whole, together with the row: one latency of DRAM, more registers."""

    def declare_weights(self) -> None:
        """Declare all weights."""
        self.whole = self._tile("weights", 1, len(self.firsts) * BLOCK, self.problem.dtype)

    def parts(self) -> list[RegisterHandle]:
        """Declare what the residual is loaded into: a row."""
        return [self.whole_row("part")]

    def begin(self, other: GlobalHandle | None, at: Index, parts: list[RegisterHandle]) -> None:
        """Start the loads of residual and weights."""
        if other is not None:
            self.k.load(parts[0], other[at, 0])
        self.k.load(self.whole, self.weight[0, 0])

    def add(
        self, row: RegisterHandle, other: GlobalHandle, total: GlobalHandle, at: Index, parts: list[RegisterHandle]
    ) -> None:
        """Add the residual, which is there, and write the sum."""
        for col in self.firsts:
            block = row.columns(col, BLOCK)
            self.k.elementwise("add", block, block, parts[0].columns(col, BLOCK))
            self.k.store(total[at, col], block)

    def load_weights(self, index: int) -> None:
        """Nothing: they are on their way."""

    def block_of_weights(self, index: int) -> RegisterHandle | RegisterPart | RegisterQuarter:
        """Return where a block of weights is."""
        return self.whole.columns(self.firsts[index], BLOCK)
