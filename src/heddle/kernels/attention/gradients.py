"""Inputs and gradients of attention by NumPy in float64: what a backward pass reads, and what it must write."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 and float8 with NumPy)
import numpy as np
from numpy.typing import NDArray

from heddle.ir.dtypes import NUMPY_NAMES
from heddle.kernels.attention.shape import AttentionProblem

Arrays = dict[str, NDArray[Any]]
Wide = NDArray[np.float64]


def gradients(problem: AttentionProblem, seed: int) -> tuple[Arrays, dict[str, Wide]]:
    """Return ({"Q", "K", "V", "dO", "O", "LSE"}, {"dQ", "dK", "dV"}) with seeded normal Q, K, V and dO.

    Q, O, dO, dQ: [batch * heads_q, seqlen_q, d]; K, V, dK, dV: [batch * heads_kv, seqlen_kv, d]; LSE (fp32, natural
    logarithm of the sum of a row): [batch * heads_q, seqlen_q]. O is rounded, as the backward pass reads it.
    """
    generator = np.random.default_rng(seed)
    dtype = np.dtype(NUMPY_NAMES[problem.dtype])

    def normal(heads: int, rows: int) -> NDArray[Any]:
        return generator.standard_normal((problem.batch * heads, rows, problem.head_dim)).astype(dtype)

    q = normal(problem.heads_q, problem.seqlen_q)
    k, v = (normal(problem.heads_kv, problem.seqlen_kv) for _ in range(2))
    grad_out = normal(problem.heads_q, problem.seqlen_q)
    out, lse = np.zeros(q.shape), np.zeros(q.shape[:2])
    found = {"dQ": np.zeros(q.shape), "dK": np.zeros(k.shape), "dV": np.zeros(v.shape)}
    for plane in range(len(q)):
        kv = plane // problem.group
        wide = [array.astype(np.float64) for array in (q[plane], k[kv], v[kv], grad_out[plane])]
        out[plane], lse[plane], (dq, dk, dv) = _plane(problem, *wide)
        found["dQ"][plane] = dq
        found["dK"][kv] += dk
        found["dV"][kv] += dv
    inputs = {"Q": q, "K": k, "V": v, "dO": grad_out, "O": out.astype(dtype), "LSE": lse.astype(np.float32)}
    return inputs, found


def _plane(problem: AttentionProblem, q: Wide, k: Wide, v: Wide, grad_out: Wide) -> tuple[Wide, Wide, list[Wide]]:
    """Return O, LSE and [dQ, dK, dV] of one query head; a row that sees no key has zeros."""
    scores = q @ k.T * problem.scale
    if problem.causal:
        seen = np.arange(problem.seqlen_kv)[None, :] <= np.arange(problem.seqlen_q)[:, None] + problem.diagonal
        scores = np.where(seen, scores, -np.inf)
    highest = scores.max(axis=1, keepdims=True)
    highest = np.where(np.isfinite(highest), highest, 0.0)
    weights = np.exp(scores - highest)
    total = weights.sum(axis=1, keepdims=True)
    weights /= np.where(total > 0, total, 1.0)
    out = weights @ v
    change = weights * (grad_out @ v.T - (grad_out * out).sum(axis=1, keepdims=True)) * problem.scale
    lse = np.where(total > 0, np.log(np.where(total > 0, total, 1.0)) + highest, 0.0)[:, 0]
    return out, lse, [change @ k, change.T @ q, weights.T @ grad_out]
