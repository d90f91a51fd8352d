"""The epilogues of the FIBER-native GEMM kernels: columns of sums are gated or rotated on their way out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heddle.kernels.gemm.rope import Rotation, table
from heddle.kernels.gemm.shape import Epilogue, GemmProblem
from heddle.lang import Builder, Index, RegisterHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberProduct:
    """C = A B^T with A [m, k] and B [n, k] of 16-bit elements, and its epilogue with the heads of rope."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    epilogue: Epilogue = "none"
    head_dim: int = 0
    heads_q: int = 0
    heads_kv: int = 0

    @property
    def problem(self) -> GemmProblem:
        """The product as a problem of any GEMM."""
        return GemmProblem(
            m=self.m,
            n=self.n,
            k=self.k,
            dtype=self.dtype,
            epilogue=self.epilogue,
            head_dim=self.head_dim,
            heads_q=self.heads_q,
            heads_kv=self.heads_kv,
        )

    def item_columns(self, cols: Sequence[int], suffix: str = "") -> dict[str, list[int]]:
        """Return what work items at these columns tell the epilogue: where they lie in C, and what is rotated."""
        problem = self.problem
        if problem.gated:
            return {f"output_col{suffix}": [col // 2 for col in cols]}
        if not problem.rotated:
            return {}
        rotated = [int(col < problem.rotated_cols) for col in cols]
        return {
            f"rotated{suffix}": rotated,
            f"plain{suffix}": [1 - flag for flag in rotated],
            f"head_col{suffix}": [col % problem.head_dim for col in cols],
        }


class FiberEpilogue:
    """Registers of one role for the epilogue of `shape` sums at a time; `ahead`: tiles of cosines and sines."""

    def __init__(
        self, k: Builder, problem: GemmProblem, shape: tuple[int, int], warps: tuple[int, int], ahead: int
    ) -> None:
        self.k, self.problem, self.cols = k, problem, shape[1]
        self.c_global = k.tensor("C", (problem.m, problem.output_cols), problem.dtype, role="output")
        half = (shape[0], shape[1] // 2)
        self.gated = k.registers("gated", half, "fp32", warps=warps) if problem.gated else None
        angles = table(k, problem)
        self.rotation = Rotation(k, angles, "out", shape, ahead, warps) if angles is not None else None

    def load(self, row: Index, head_col: Index, col: int) -> None:
        """With rope: load cosines and sines of the columns from the tile's `col` on; `head_col`: of the tile."""
        if self.rotation is not None:
            inside = col % self.problem.head_dim
            self.rotation.load(col // self.cols, row, head_col + inside if inside else head_col)

    def apply(self, registers: RegisterHandle, col: int, *, rotated: bool | Index) -> RegisterHandle:
        """Return what is stored of the columns from the tile's `col` on; `rotated`: with rope, also an item's flag."""
        if self.gated is not None:
            self.k.gate(self.gated, registers)
            return self.gated
        if self.rotation is not None and rotated is not False:
            self.rotation.rotate(rotated, registers, col // self.cols)
        return registers
