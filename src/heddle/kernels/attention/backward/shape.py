"""Configuration of the main backward kernel of attention."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels.attention.shape import AttentionProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardConfig:
    """How the backward pass is cut and run.

    A CTA of `warps` warps takes `tile_n` keys of one query head and goes through its queries in blocks of `tile_m`, of
    which `stages` of Q lie in shared memory. Of the warps, `scores_rows` lie along the rows of S and dP, `keys_rows`
    along those of dK and dV, `queries_rows` along those of dQ; the others lie along columns.
    """

    tile_m: int
    tile_n: int
    stages: int
    warps: int
    scores_rows: int
    keys_rows: int
    queries_rows: int

    def label(self) -> str:
        """Return a short name, as in `fa2 64x128 w8 s2`."""
        return f"fa2 {self.tile_m}x{self.tile_n} w{self.warps} s{self.stages}"

    def grid(self, rows: int) -> tuple[int, int]:
        """Return the warps along rows and columns of a product."""
        return rows, self.warps // rows


def backward_flops(problem: AttentionProblem) -> int:
    """Return the useful operations by convention: 2.5 times those of the forward pass, for five products to its two."""
    return 5 * problem.flops // 2
