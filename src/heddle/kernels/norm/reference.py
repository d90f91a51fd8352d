"""Inputs and expected outputs of an RMS normalisation, by NumPy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 and float8 with NumPy)
import numpy as np
from numpy.typing import NDArray

from heddle.ir.dtypes import NUMPY_NAMES
from heddle.kernels.norm.shape import EPSILON, NormProblem


def reference(problem: NormProblem, seed: int) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
    """Return ({"X", "R": [rows, hidden], "W": [1, hidden]}, {"Y", "S": [rows, hidden] in float64}).

    Inputs are seeded normal, weights around one. R and S exist with a residual only; S = X + R is rounded before it is
    squared, as it is what the next layer reads.
    """
    generator = np.random.default_rng(seed)
    dtype, shape = np.dtype(NUMPY_NAMES[problem.dtype]), (problem.rows, problem.hidden)
    inputs = {"X": generator.standard_normal(shape).astype(dtype)}
    inputs["W"] = (1 + 0.1 * generator.standard_normal((1, problem.hidden))).astype(dtype)
    outputs = {}
    rows = inputs["X"].astype(np.float64)
    if problem.residual:
        inputs["R"] = generator.standard_normal(shape).astype(dtype)
        rows = rows + inputs["R"].astype(np.float64)
        outputs["S"] = rows
        rows = rows.astype(dtype).astype(np.float64)
    root = np.sqrt((rows**2).mean(axis=1, keepdims=True) + EPSILON)
    outputs["Y"] = rows / root * inputs["W"].astype(np.float64)
    return inputs, outputs
