"""Problem and configuration of an RMS normalisation."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.ir.dtypes import dtype_bytes
from heddle.kernels._parameters import TileParameter

EPSILON = 1e-5
"""Added to the mean square (Llama 2 and 3)."""
STEPS = 4
"""Operations for an element: square, add up, scale, weigh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NormProblem:
    """`rows` vectors of `hidden` elements. `residual`: another tensor is added first, and the sum is written too."""

    rows: int
    hidden: int
    dtype: str
    residual: bool = False

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of every tensor."""
        return dtype_bytes(self.dtype)

    @property
    def flops(self) -> int:
        """Useful operations."""
        return (STEPS + self.residual) * self.rows * self.hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class NormConfig:
    """A CTA of `warps` warps normalises as many rows, a row a warp.

    `early`: 1 starts the loads of row, residual and weights together, 0 has two blocks of the latter on their way.
    """

    warps: int
    early: int = 0

    def label(self) -> str:
        """Return a short name, as in `4 rows` or `4 rows early`."""
        return f"{self.warps} rows" + (" early" if self.early else "")


TILE = (
    TileParameter("warps", int, "rows of a CTA, each of which one warp has in its registers", "1 to 16"),
    TileParameter("early", int, "1: residual and weights are loaded whole, together with the row", "0, 1"),
)
"""What the fields of `NormConfig` may be, for people."""
