"""Gradients of attention by NumPy in float64, and what the kernels of the backward pass read and write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
import numpy as np
from numpy.typing import NDArray

from heddle.ir.dtypes import NUMPY_NAMES
from heddle.kernels.attention.reference import weights
from heddle.kernels.attention.shape import AttentionProblem

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Backward:
    """Tensors of the backward pass. Planes are heads of all sequences, one behind the other.

    q, o, do, dq: [batch * heads_q, seqlen_q, d]; k, v: [batch * heads_kv, seqlen_kv, d]; lse (logarithm of the sum of
    exponentials of scaled scores), delta (row sums of dO * O): [batch * heads_q, seqlen_q, 1]; dk, dv: of each query
    head, [batch * heads_q, seqlen_kv, d]. `q`, `k`, `v`, `o` and `do` are exact in the problem's type.
    """

    q: Array
    k: Array
    v: Array
    o: Array
    do: Array
    lse: Array
    delta: Array
    dq: Array
    dk: Array
    dv: Array


def backward(problem: AttentionProblem, seed: int, *, round_o: bool = True) -> Backward:
    """Return seeded normal Q, K, V and dO, and everything that follows from them, in float64.

    O is rounded to the problem's type, as the forward kernel stores it: delta is of these values. Without `round_o`
    gradients are the exact ones.
    """
    generator = np.random.default_rng(seed)
    dtype = np.dtype(NUMPY_NAMES[problem.dtype])

    def normal(heads: int, rows: int) -> Array:
        values = generator.standard_normal((problem.batch * heads, rows, problem.head_dim))
        return values.astype(dtype).astype(np.float64)

    q = normal(problem.heads_q, problem.seqlen_q)
    k, v = (normal(problem.heads_kv, problem.seqlen_kv) for _ in range(2))
    do = normal(problem.heads_q, problem.seqlen_q)
    o, lse, delta = np.zeros_like(q), np.zeros((*q.shape[:2], 1)), np.zeros((*q.shape[:2], 1))
    dq, dk = np.zeros_like(q), np.zeros((len(q), problem.seqlen_kv, problem.head_dim))
    dv = np.zeros_like(dk)
    for plane in range(len(q)):
        key, value = k[plane // problem.group], v[plane // problem.group]
        p, lse[plane] = weights(problem, q[plane], key)
        o[plane] = (p @ value).astype(dtype if round_o else np.float64)
        delta[plane] = (do[plane] * o[plane]).sum(axis=1, keepdims=True)
        slopes = p * (do[plane] @ value.T - delta[plane]) * problem.scale
        dq[plane], dk[plane], dv[plane] = slopes @ key, slopes.T @ q[plane], p.T @ do[plane]
    return Backward(q, k, v, o, do, lse, delta, dq, dk, dv)


def group_sums(problem: AttentionProblem, of_heads: NDArray[Any]) -> NDArray[Any]:
    """Return the sums over the query heads of each key and value head: [batch * heads_kv, seqlen_kv, d]."""
    planes = problem.batch * problem.heads_kv
    sums: NDArray[Any] = of_heads.reshape(planes, problem.group, *of_heads.shape[1:]).sum(axis=1)
    return sums
