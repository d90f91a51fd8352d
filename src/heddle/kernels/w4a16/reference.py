"""Inputs and expected output of a W4A16 GEMM, by NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.kernels.w4a16.shape import W4Problem

LEVELS = 16
"""Values of a weight of 4 bits."""


def reference(problem: W4Problem, seed: int) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
    """Return (inputs by tensor name, {"C": [m, n] in float64}).

    Inputs are seeded: A normal, weights and zero points uniform, scales positive. Dequantised weights are fp16, as the
    product takes them.
    """
    generator = np.random.default_rng(seed)
    a = generator.standard_normal((problem.m, problem.k)).astype(np.float16)
    weights = generator.integers(0, LEVELS, (problem.k, problem.n), dtype=np.uint8)
    groups = (problem.k // problem.group, problem.n)
    scales = (generator.uniform(0.5, 1.5, groups) / np.sqrt(problem.k)).astype(np.float16)
    zeros = generator.integers(0, LEVELS, groups).astype(np.float16)
    scale, zero = (np.repeat(t.astype(np.float64), problem.group, axis=0) for t in (scales, zeros))
    plain = ((weights - zero) * scale).astype(np.float16)
    inputs = {"A": a, "Q": packed(weights), "S": scales, "Z": zeros}
    return inputs, {"C": a.astype(np.float64) @ plain.astype(np.float64)}


def packed(weights: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return [k / 8, 4 n]: eight weights [k, n] of a column in four bytes, the first of two in the low half."""
    rows, cols = weights.shape
    eights = weights.reshape(rows // 8, 4, 2, cols)
    octets = eights[:, :, 0] + LEVELS * eights[:, :, 1]
    return octets.transpose(0, 2, 1).reshape(rows // 8, 4 * cols).astype(np.uint8)
