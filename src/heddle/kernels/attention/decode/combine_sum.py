"""O of a row from some splits at a time: what wefts that combine have in registers, and what they do.

Today's kernel goes through the logarithms twice, for the sum of all and for the shares. Wefts take logarithms and
parts together as they come, and correct what they have when a higher logarithm follows, so that nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from heddle.kernels._streams import WEFTS
from heddle.kernels._warp import LANES
from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.lang import Builder, Index, RegisterHandle

LANE_COLUMNS = 8
"""Of a row: what a lane has side by side."""
COLUMNS = 4
"""Registers of a weft for what it has of each row beside O: highest logarithm, sum, correction, weight."""
MOST_PARTS = 16
"""Splits that are taken together."""
WORKING_REGISTERS = 40
"""Of a weft beside O and what it has loaded: addresses, columns, values on their way to a store."""
LOWEST = -1e30


def row_lanes(problem: DecodeProblem) -> int:
    """Return the lanes that a row lies over."""
    return min(LANES, problem.head_dim // LANE_COLUMNS)


def unit_rows(problem: DecodeProblem) -> int:
    """Return the rows that lie side by side in four wefts."""
    return WEFTS * LANES // row_lanes(problem)


def part_registers(problem: DecodeProblem) -> int:
    """Return the registers of a lane for a part of a row."""
    return problem.head_dim // row_lanes(problem)


def chunks(k: Builder, splits: int, size: int) -> Iterator[tuple[Index | int, int]]:
    """Yield (first split, how many) for a loop over so many at a time, and for what is left."""
    whole, rest = divmod(splits, size)
    if whole > 1:
        for chunk in k.range(whole, name="splits"):
            yield chunk * size, size
    else:
        yield 0, size
    if rest:
        yield whole * size, rest


class Sum:
    """O of some rows in four wefts, not yet divided by the sum of weights."""

    def __init__(self, k: Builder, problem: DecodeProblem, suffix: str) -> None:
        self.k, self.problem, self.suffix = k, problem, suffix
        self.total, self.highest, self.sum = self.tile("o", problem.head_dim), self.tile("max"), self.tile("sum")
        self.before, self.weight = self.tile("before"), self.tile("weight")

    def tile(self, name: str, cols: int = 1) -> RegisterHandle:
        """Declare a tile of the rows, a value a row by default."""
        shape = (unit_rows(self.problem), cols)
        return self.k.registers(
            name + self.suffix, shape, "fp32", warps=(WEFTS, 1), spread="rows", row_lanes=row_lanes(self.problem)
        )

    def begin(self) -> None:
        """No split has been added."""
        for tile, value in ((self.highest, LOWEST), (self.sum, 0.0), (self.total, 0.0)):
            self.k.fill(tile, value)

    def add(
        self,
        logs: Sequence[RegisterHandle],
        parts: Sequence[RegisterHandle],
        taken: Callable[[RegisterHandle], None] = lambda tile: None,
    ) -> None:
        """Add splits, each weighted by 2 to the power of its logarithm less the highest; `taken`: a tile is read."""
        k = self.k
        k.elementwise("copy", self.before, self.highest)
        for log in logs:
            k.elementwise("max", self.highest, self.highest, log)
        k.elementwise("sub", self.before, self.before, self.highest)
        k.elementwise("exp2", self.before, self.before)
        for tile in (self.sum, self.total):
            k.elementwise("mul", tile, tile, self.before)
        for log, part in zip(logs, parts, strict=True):
            k.elementwise("sub", self.weight, log, self.highest)
            taken(log)
            k.elementwise("exp2", self.weight, self.weight)
            k.elementwise("add", self.sum, self.sum, self.weight)
            k.elementwise("fma", self.total, part, self.weight, self.total)
            taken(part)

    def divide(self) -> None:
        """`total` is O."""
        self.k.elementwise("reciprocal", self.sum, self.sum)
        self.k.elementwise("mul", self.total, self.total, self.sum)
