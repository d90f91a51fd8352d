"""Inputs and outputs of decoding by NumPy in float64: of each launch, and of both."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.kernels.attention.reference import reference

Arrays = dict[str, NDArray[Any]]
Expected = dict[str, NDArray[np.float64]]


def whole(problem: DecodeProblem, seed: int) -> tuple[Arrays, Expected]:
    """Return ({"Q", "K", "V"}, {"O": [batch * heads_kv, group, d]}): attention of the packed problem."""
    inputs, expected = reference(problem.packed, seed)
    return {name: inputs[name] for name in "QKV"}, {"O": expected["O"]}


def parts(problem: DecodeProblem, seed: int) -> tuple[Arrays, Expected]:
    """Return ({"Q", "K", "V"}, {"O_partial": [planes, group, splits * d], "LSE_partial": [planes, group, splits]})."""
    inputs, _ = whole(problem, seed)
    q, k, v = (inputs[name].astype(np.float64) for name in "QKV")
    keys = problem.blocks_per_split * problem.keys
    outs, logs = [], []
    for first in range(0, problem.seqlen_kv, keys):
        scores = q @ k[:, first : first + keys].transpose(0, 2, 1) * problem.packed.scale
        highest = scores.max(axis=2, keepdims=True)
        weights = np.exp(scores - highest)
        total = weights.sum(axis=2, keepdims=True)
        outs.append(weights @ v[:, first : first + keys] / total)
        logs.append((highest + np.log(total)) / np.log(2.0))
    return inputs, {"O_partial": np.concatenate(outs, axis=2), "LSE_partial": np.concatenate(logs, axis=2)}


def combination(problem: DecodeProblem, seed: int) -> tuple[Arrays, Expected]:
    """Return ({"O_partial", "LSE_partial"}, {"O": [rows, d]}) with seeded normal parts and logarithms."""
    generator = np.random.default_rng(seed)
    splits, d = problem.num_splits, problem.head_dim
    outs = generator.standard_normal((problem.rows, splits, d)).astype(np.float32)
    logs = (4.0 * generator.standard_normal((problem.rows, splits))).astype(np.float32)
    weights = np.exp2(logs.astype(np.float64) - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    out = np.einsum("rs,rsd->rd", weights, outs.astype(np.float64))
    return {"O_partial": outs.reshape(problem.rows, -1), "LSE_partial": logs}, {"O": out}
