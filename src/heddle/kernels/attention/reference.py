"""Inputs and expected output of attention, by NumPy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 and float8 with NumPy)
import numpy as np
from numpy.typing import NDArray

from heddle.ir.dtypes import NUMPY_NAMES
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LEAST_SUM, LOWEST

Arrays = dict[str, NDArray[Any]]


def reference(problem: AttentionProblem, seed: int) -> tuple[Arrays, dict[str, NDArray[np.float64]]]:
    """Return seeded normal inputs and the float64 output, by tensor name.

    LSE, where the problem asks for it: [batch * heads_q, seqlen_q, 1].
    Q, O: [batch * heads_q, seqlen_q, d]; K, V: [batch * heads_kv, seqlen_kv, d]. Q_packed, O_packed: the same values
    as [batch * heads_kv, seqlen_q * group, d], for kernels that pack the query heads of a key and value head.
    """
    generator = np.random.default_rng(seed)
    dtype = np.dtype(NUMPY_NAMES[problem.dtype])

    def normal(heads: int, rows: int) -> NDArray[Any]:
        return generator.standard_normal((problem.batch * heads, rows, problem.head_dim)).astype(dtype)

    q = normal(problem.heads_q, problem.seqlen_q)
    k, v = (normal(problem.heads_kv, problem.seqlen_kv) for _ in range(2))
    out = attention(problem, q.astype(np.float64), k.astype(np.float64), v.astype(np.float64))
    inputs: Arrays = {"Q": q, "K": k, "V": v, "Q_packed": packed(problem, q)}
    outputs = {"O": out, "O_packed": packed(problem, out)}
    if problem.lse:
        pairs = ((q[plane], k[plane // problem.group]) for plane in range(len(q)))
        outputs["LSE"] = np.stack([weights(problem, *(each.astype(np.float64) for each in pair))[1] for pair in pairs])
    return inputs, outputs


def attention(
    problem: AttentionProblem, q: NDArray[np.float64], k: NDArray[np.float64], v: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return O in float64, plane by plane; rows that see no key are zero."""
    out = np.zeros_like(q)
    seen = np.arange(problem.seqlen_kv)[None, :] <= np.arange(problem.seqlen_q)[:, None] + problem.diagonal
    for plane in range(len(q)):
        scores = q[plane] @ k[plane // problem.group].T * problem.scale
        if problem.causal:
            scores = np.where(seen, scores, -np.inf)
        highest = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - np.where(np.isfinite(highest), highest, 0.0))
        total = weights.sum(axis=1, keepdims=True)
        out[plane] = weights @ v[plane // problem.group] / np.where(total > 0, total, 1.0)
    return out


def weights(
    problem: AttentionProblem, q: NDArray[np.float64], k: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return P [seqlen_q, seqlen_kv] and LSE [seqlen_q, 1] of one head; a row without keys has weights of zero.

    LSE is the natural logarithm of the sum of the exponentials of a row's scaled scores, as the kernels compute it.
    """
    scores = q @ k.T * problem.scale
    if problem.causal:
        seen = np.arange(problem.seqlen_kv)[None, :] <= np.arange(problem.seqlen_q)[:, None] + problem.diagonal
        scores = np.where(seen, scores, -np.inf)
    highest = np.maximum(scores.max(axis=1, keepdims=True), LOWEST * problem.scale)  # of a row without keys
    exponentials = np.exp(scores - highest)
    total = np.maximum(exponentials.sum(axis=1, keepdims=True), LEAST_SUM)
    return exponentials / total, highest + np.log(total)


def packed(problem: AttentionProblem, array: NDArray[Any]) -> NDArray[Any]:
    """Put the query heads of a key and value head side by side: row r is query r // group of head r % group."""
    heads = array.reshape(problem.batch * problem.heads_kv, problem.group, problem.seqlen_q, problem.head_dim)
    return np.ascontiguousarray(heads.transpose(0, 2, 1, 3)).reshape(len(heads), -1, problem.head_dim)


def unpacked(problem: AttentionProblem, array: NDArray[Any]) -> NDArray[Any]:
    """Undo `packed`; the planes of rows may lie one below the other. Returns [batch * heads_q * seqlen_q, d]."""
    heads = array.reshape(problem.batch * problem.heads_kv, problem.seqlen_q, problem.group, problem.head_dim)
    return np.ascontiguousarray(heads.transpose(0, 2, 1, 3)).reshape(-1, problem.head_dim)
