"""Inputs and expected output of a GEMM, by NumPy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 and float8 with NumPy)
import numpy as np
from numpy.typing import NDArray

from heddle.ir.dtypes import NUMPY_NAMES
from heddle.ir.tile_math import GATE_COLUMNS
from heddle.kernels.gemm.rope import BASE, TABLE
from heddle.kernels.gemm.shape import GemmProblem


def reference(problem: GemmProblem, seed: int) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
    """Return ({"A": [m, k], "B": [n, k]} of the problem's type, {"C": [m, n]} in float64); inputs are seeded normal.

    With rope also "T", the table of cosines and sines, rounded to the type that the kernel reads.
    """
    generator = np.random.default_rng(seed)
    dtype = np.dtype(NUMPY_NAMES[problem.dtype])
    a = generator.standard_normal((problem.m, problem.k)).astype(dtype)
    b = generator.standard_normal((problem.n, problem.k)).astype(dtype)
    product = a.astype(np.float64) @ b.astype(np.float64).T
    inputs = {"A": a, "B": b}
    if problem.rotated:
        inputs[TABLE] = angles(problem).astype(dtype)
    return inputs, {"C": epilogue(product, problem, inputs.get(TABLE))}


def epilogue(
    product: NDArray[np.float64], problem: GemmProblem, table: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    """Return C of the product A B^T; `table`: cosines and sines [m, head_dim], with rope."""
    if problem.gated:
        pairs = product.reshape(problem.m, -1, 2, GATE_COLUMNS)
        gate, other = pairs[:, :, 0], pairs[:, :, 1]
        gated: NDArray[np.float64] = (gate / (1 + np.exp(-gate)) * other).reshape(problem.m, problem.output_cols)
        return gated
    return product if table is None else rotated(product, table.astype(np.float64), problem)


def angles(problem: GemmProblem) -> NDArray[np.float64]:
    """Return [m, head_dim]: cosine and sine of each pair of a head, for the tokens of one sequence."""
    pair = np.arange(problem.head_dim // 2)
    angle = np.arange(problem.m)[:, None] / BASE ** (2 * pair / problem.head_dim)
    return np.stack((np.cos(angle), np.sin(angle)), axis=2).reshape(problem.m, problem.head_dim)


def rotated(product: NDArray[np.float64], turns: NDArray[np.float64], problem: GemmProblem) -> NDArray[np.float64]:
    """Multiply the pairs of Q and K [m, n] as complex numbers by those of the table [m, head_dim]; V stays."""
    heads = product[:, : problem.rotated_cols].reshape(problem.m, -1, problem.head_dim // 2, 2)
    turn = turns.reshape(problem.m, 1, -1, 2)
    turned = (heads[..., 0] + 1j * heads[..., 1]) * (turn[..., 0] + 1j * turn[..., 1])
    left = np.stack((turned.real, turned.imag), axis=3).reshape(problem.m, problem.rotated_cols)
    return np.concatenate((left, product[:, problem.rotated_cols :]), axis=1)
