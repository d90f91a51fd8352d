"""Inputs and expected output of a GEMM, by NumPy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 and float8 with NumPy)
import numpy as np
from numpy.typing import NDArray

from heddle.ir.dtypes import NUMPY_NAMES
from heddle.ir.tile_ops import GATE_COLUMNS
from heddle.kernels.gemm.shape import GemmProblem


def reference(problem: GemmProblem, seed: int) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
    """Return ({"A": [m, k], "B": [n, k]} of the problem's type, {"C": [m, n]} in float64); inputs are seeded normal."""
    generator = np.random.default_rng(seed)
    dtype = np.dtype(NUMPY_NAMES[problem.dtype])
    a = generator.standard_normal((problem.m, problem.k)).astype(dtype)
    b = generator.standard_normal((problem.n, problem.k)).astype(dtype)
    product = a.astype(np.float64) @ b.astype(np.float64).T
    if problem.gated:
        pairs = product.reshape(problem.m, -1, 2, GATE_COLUMNS)
        gate, other = pairs[:, :, 0], pairs[:, :, 1]
        product = (gate / (1 + np.exp(-gate)) * other).reshape(problem.m, problem.output_cols)
    return {"A": a, "B": b}, {"C": product}
