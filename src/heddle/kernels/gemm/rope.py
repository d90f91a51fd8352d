"""Rotary position embedding in the epilogue: pairs of neighbouring columns of each head of Q and K are rotated.

The product is that of a QKV projection: columns of the heads of Q, of K, of V. Pair i of a head is its columns 2i and
2i + 1, as in Meta's reference code of Llama, so that a thread has both; where a model pairs i with i + head_dim / 2,
the rows of its weights are put into this order once, which changes no attention score. The table T has one row a token,
with cosine and sine of each pair side by side, of the type of C (as inference servers keep it).
"""

from __future__ import annotations

from contextlib import nullcontext

from heddle.errors import UserError
from heddle.kernels.gemm.shape import GemmProblem
from heddle.lang import Builder, GlobalHandle, Index, RegisterHandle, RegisterPart

TABLE = "T"
BASE = 10000.0
"""Angle of pair i at position p: p / BASE^(2i / head_dim) (Llama 2; Llama 3 has another base, and the same cost)."""


def table(k: Builder, problem: GemmProblem) -> GlobalHandle | None:
    """Declare the table of cosines and sines; None without this epilogue."""
    return k.tensor(TABLE, (problem.m, problem.head_dim), problem.dtype) if problem.rotated else None


def check_heads(problem: GemmProblem) -> None:
    """Raise UserError unless the columns of the product are those of the heads."""
    heads = problem.heads_q + 2 * problem.heads_kv
    if problem.rotated and problem.n != heads * problem.head_dim:
        raise UserError(
            f"rope is the epilogue of a QKV projection: {problem.heads_q} heads of Q and {problem.heads_kv} each of K "
            f"and V, of {problem.head_dim}, have {heads * problem.head_dim} columns; n is {problem.n}",
            hint=f"n={heads * problem.head_dim}",
        )


def check_tile(problem: GemmProblem, tile_n: int, cluster_n: int = 1, *, wide: bool = True) -> None:
    """Raise UserError unless tiles end where heads do, and the last rotated one where V begins.

    `wide`: tiles may have several heads.
    """
    if not problem.rotated:
        return
    if problem.head_dim % tile_n and not (wide and tile_n % problem.head_dim == 0):
        allowed = f"divides the {problem.head_dim} columns of a head" + (" or is a multiple of them" if wide else "")
        raise UserError(f"with rope tile_n {allowed}; got {tile_n}")
    if problem.rotated_cols % (tile_n * cluster_n):
        raise UserError(
            f"with rope the {problem.rotated_cols} columns of Q and K are a multiple of the tile's "
            f"{tile_n * cluster_n}, which are rotated together",
            hint="use a narrower tile",
        )


def fits_head(problem: GemmProblem, tile_n: int) -> bool:
    """Return whether tiles of so many columns keep the rule of `check_tile` and have no more than one head."""
    return fits_heads(problem, tile_n, wide=False)


def fits_heads(problem: GemmProblem, tile_n: int, *, wide: bool = True) -> bool:
    """Return whether tiles of so many columns keep the rule of `check_tile`; `wide`: they may have several heads."""
    try:
        check_tile(problem, tile_n, wide=wide)
    except UserError:
        return False
    return True


class Rotation:
    """`count` tiles of cosines and sines in registers, each for so many columns of a tile of the product."""

    def __init__(
        self, k: Builder, angles: GlobalHandle, name: str, shape: tuple[int, int], count: int, warps: tuple[int, int]
    ) -> None:
        self.k, self.angles, dtype = k, angles, angles.tensor.dtype
        self.parts = [k.registers(f"{name}_angles{i}", shape, dtype, warps=warps) for i in range(count)]

    def load(self, index: int, row: Index, col: Index) -> None:
        """Load a tile, ahead of time and so for V, too; `col` is that of the head."""
        self.k.load(self.parts[index % len(self.parts)], self.angles[row, col])

    def rotate(self, rotated: Index | bool, registers: RegisterHandle | RegisterPart, index: int) -> None:
        """Rotate columns in place by a tile that has been loaded, if the item is `rotated`: V stays as it is."""
        with self.k.when(rotated) if isinstance(rotated, Index) else nullcontext():
            self.k.elementwise("rotate", registers, registers, self.parts[index % len(self.parts)])
