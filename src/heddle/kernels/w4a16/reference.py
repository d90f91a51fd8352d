"""Inputs and expected output of a W4A16 GEMM, by NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.kernels.w4a16.shape import BOOKS, ENTRIES, W4Problem

LEVELS = 16
"""Values of a weight of 4 bits."""


def reference(problem: W4Problem, seed: int) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
    """Return (inputs by tensor name, {"C": [m, n] in float64}).

    Inputs are seeded: A normal, weights and zero points uniform, scales positive. Dequantised weights are fp16, as the
    product takes them.
    """
    generator = np.random.default_rng(seed)
    a = generator.standard_normal((problem.m, problem.k)).astype(np.float16)
    stored, plain = quantised(problem, generator)
    return {"A": a, **stored}, {"C": a.astype(np.float64) @ plain}


def quantised(
    problem: W4Problem, generator: np.random.Generator, size: float = 1.0
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float64]]:
    """Return (seeded weights by tensor name, what they stand for [k, n] in float64); `size`: of all scales."""
    if problem.looks_up:
        return _codes(problem, generator, size)
    weights = generator.integers(0, LEVELS, (problem.k, problem.n), dtype=np.uint8)
    groups = (problem.k // problem.group, problem.n)
    scales = (size * generator.uniform(0.5, 1.5, groups) / np.sqrt(problem.k)).astype(np.float16)
    zeros = generator.integers(0, LEVELS, groups).astype(np.float16)
    scale, zero = (np.repeat(t.astype(np.float64), problem.group, axis=0) for t in (scales, zeros))
    plain = ((weights - zero) * scale).astype(np.float16)
    return {"Q": packed(weights), "S": scales, "Z": zeros}, plain.astype(np.float64)


def _codes(
    problem: W4Problem, generator: np.random.Generator, size: float
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float64]]:
    """The same by codes of AQLM: codebooks normal, one under the other in K, codes uniform.

    R and T are codes and scales again as `gemv` takes them: [n, k / 8], both codes of two codebooks in 16 bits; [n, 1].
    """
    books, entries = BOOKS[problem.scheme], ENTRIES[problem.scheme] // BOOKS[problem.scheme]
    book = generator.standard_normal((books * entries, 8)).astype(np.float16)
    codes = generator.integers(0, entries, (problem.k // 8, problem.n, books))
    scales = (size * generator.uniform(0.5, 1.5, (1, problem.n)) / np.sqrt(problem.k)).astype(np.float16)
    chosen = book[codes + entries * np.arange(books)].astype(np.float64).sum(axis=2).astype(np.float16)
    plain = chosen.transpose(0, 2, 1).reshape(problem.k, problem.n).astype(np.float64)
    weights = (plain * scales.astype(np.float64)).astype(np.float16)
    kind = np.uint16 if books == 1 else np.uint8
    stored = {"Q": codes.reshape(problem.k // 8, -1).astype(kind), "S": scales, "K": book}
    by_rows = (codes << 16 // books * np.arange(books)).sum(axis=2).astype(np.uint16).T
    return {**stored, "R": by_rows, "T": scales.T}, weights.astype(np.float64)


def packed(weights: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return [k / 8, 4 n]: eight weights [k, n] of a column in four bytes, the first of two in the low half."""
    rows, cols = weights.shape
    eights = weights.reshape(rows // 8, 4, 2, cols)
    octets = eights[:, :, 0] + LEVELS * eights[:, :, 1]
    return octets.transpose(0, 2, 1).reshape(rows // 8, 4 * cols).astype(np.uint8)
