"""The online softmax: what a warp keeps of each of its rows while it goes through the keys block by block."""

from __future__ import annotations

from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, RegisterHandle, RegisterPart

LOWEST = -1e30
"""Running maximum before the first key: finite, so that a row of masked scores gives exponentials of zero, no NaN."""
LEAST_SUM = 1e-30
"""Smallest sum that is divided by: a row without keys gives zeros."""
LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453


class OnlineSoftmax:
    """Running maximum and sum of `rows` rows over the warps of one role; scores come as tiles of `rows` rows.

    Exponentials are powers of two of (score - maximum) * scale * log2(e). Each lane adds up its own columns only, until
    `finish` brings the lanes of a row together. With `exponent` e all exponentials are 2^e times as large, to use the
    range of a narrow type; the division by the sum takes it out again.
    """

    def __init__(
        self,
        k: Builder,
        name: str,
        problem: AttentionProblem,
        rows: int,
        warps: tuple[int, int],
        exponent: int = 0,
    ) -> None:
        self.k, self.exponent = k, exponent
        self.scale = problem.scale * LOG2_E

        def column(part: str) -> RegisterHandle:
            return k.registers(f"{name}_{part}", (rows, 1), "fp32", warps=warps)

        self.highest, self.before, self.scaled = column("max"), column("before"), column("scaled")
        self.total, self.correction = column("sum"), column("correction")

    def begin(self) -> None:
        """Start a tile: no key seen."""
        self.k.fill(self.highest, LOWEST)
        self.k.fill(self.total)

    def first_maximum(self, scores: RegisterHandle) -> None:
        """In place of `begin` and `maximum` where every row sees a key of the first block: no factor, no old sum."""
        self.k.row_reduce("max", self.highest, scores)
        self.k.fill(self.total)
        self.scale_highest()

    def maximum(self, scores: RegisterHandle) -> None:
        """Take a block of scores into the maximum; `correction` is the factor of what was summed before."""
        self.remember()
        self.k.row_reduce("max", self.highest, scores, accumulate=True)
        self.correct()

    def remember(self) -> None:
        """Keep the maximum so far, before scores are taken into it."""
        self.k.elementwise("copy", self.before, self.highest)

    def correct(self) -> None:
        """After a block has been taken into the maximum: `scaled`, and the factor `correction` of what was summed."""
        k = self.k
        k.elementwise("scale", self.scaled, self.highest, scalars=(self.scale,))
        k.elementwise("exp2_scaled_sub", self.correction, self.before, self.scaled, scalars=(self.scale,))
        k.elementwise("mul", self.total, self.total, self.correction)
        self._shift()

    def scale_highest(self) -> None:
        """`scaled` alone."""
        self.k.elementwise("scale", self.scaled, self.highest, scalars=(self.scale,))
        self._shift()

    def _shift(self) -> None:
        """Make the exponentials of `scaled` 2^exponent times as large."""
        if self.exponent:
            self.k.elementwise("sub", self.scaled, self.scaled, scalars=(float(self.exponent),))

    def exponentials(self, scores: RegisterHandle | RegisterPart) -> None:
        """Replace a block of scores, or columns of it, by exponentials."""
        self.k.elementwise("exp2_scaled_sub", scores, scores, self.scaled, scalars=(self.scale,))

    def add(self, exponentials: RegisterHandle | RegisterPart) -> None:
        """Add a block of exponentials, or columns of it, to the sum."""
        self.k.row_reduce("sum", self.total, exponentials, accumulate=True, across_lanes=False)

    def rescale(self, output: RegisterHandle) -> None:
        """Multiply the sums of values so far by the correction."""
        self.k.elementwise("mul", output, output, self.correction)

    def finish(self) -> None:
        """After the last block: the sums over all lanes, and `correction` = 1 / sum for `rescale`."""
        k = self.k
        k.row_reduce("sum", self.total, self.total)
        k.elementwise("max", self.total, self.total, scalars=(LEAST_SUM,))
        k.elementwise("reciprocal", self.correction, self.total)

    def log_sums(self) -> RegisterHandle:
        """After `finish`: the natural logarithm of each row's sum of exponentials, in registers that are free then."""
        k = self.k
        k.elementwise("log2", self.before, self.total)
        k.elementwise("add", self.before, self.before, self.scaled)
        k.elementwise("scale", self.before, self.before, scalars=(LN_2,))
        return self.before
