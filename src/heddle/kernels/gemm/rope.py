"""Rotary position embedding in the epilogue: pairs of neighbouring columns of each head of Q and K are rotated.

The product is that of a QKV projection: columns of the heads of Q, of K, of V. Pair i of a head is its columns 2i and
2i + 1, as in Meta's reference code of Llama, so that a thread has both; where a model pairs i with i + head_dim / 2,
the rows of its weights are put into this order once, which changes no attention score. The table T has one row a token,
with cosine and sine of each pair side by side, of the type of C (as inference servers keep it).
"""

from __future__ import annotations

from heddle.errors import UserError
from heddle.kernels.gemm.shape import GemmProblem
from heddle.lang import Builder, GlobalHandle, Index, Item, RegisterHandle, RegisterPart

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


class Rotation:
    """Cosines and sines of one tile in registers: of its `span` columns, in parts of `cols`."""

    def __init__(
        self, k: Builder, angles: GlobalHandle, name: str, shape: tuple[int, int], span: int, warps: tuple[int, int]
    ) -> None:
        self.k, self.angles, self.cols = k, angles, shape[1]
        dtype = angles.tensor.dtype
        self.parts = [k.registers(f"{name}_angles{i}", shape, dtype, warps=warps) for i in range(span // shape[1])]

    def load(self, row: Index, col: Index) -> None:
        """Load the parts, ahead of time and so for V, too; `col` is that of the head in which the tile begins."""
        for index, part in enumerate(self.parts):
            self.k.load(part, self.angles[row, col + index * self.cols])

    def rotate(self, item: Item, registers: RegisterHandle | RegisterPart, col: int) -> None:
        """Rotate columns of an item's tile, in place, from its column `col` on; those of V stay as they are."""
        with self.k.when(item.rotated):
            part = self.parts[col // self.cols % len(self.parts)]
            self.k.elementwise("rotate", registers, registers, part)
