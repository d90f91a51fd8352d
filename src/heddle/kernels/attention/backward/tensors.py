"""Global tensors of the main kernel of an attention backward pass that adds to dQ in fp32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder

ROUNDING = 4
"""Statistics of a head's queries are padded to a multiple of this: rows of a bulk copy begin at multiples of 16 bytes
(CUDA driver API, cuTensorMapEncodeTiled)."""


def padded_queries(problem: AttentionProblem) -> int:
    """Return the elements of a head's row statistics."""
    return ceil_div(problem.seqlen_q, ROUNDING) * ROUNDING


def padded(problem: AttentionProblem, rows: NDArray[np.float64], value: float = 0.0) -> NDArray[np.float64]:
    """Return a statistic [heads, queries, 1] with `value` in the padding."""
    result = np.full((len(rows), padded_queries(problem), 1), value)
    result[:, : problem.seqlen_q] = rows
    return result


class GradientTensors:
    """Q, K, V, dO; LSE in powers of two and rowsum(dO * O), one row a head; dQ in fp32; dK and dV.

    Where query heads share keys (`shared_heads`), dK and dV are added up in fp32, too.
    """

    def __init__(self, k: Builder, problem: AttentionProblem) -> None:
        heads_q, heads_kv = problem.batch * problem.heads_q, problem.batch * problem.heads_kv
        queries = (heads_q, problem.seqlen_q, problem.head_dim)
        keys = (heads_kv, problem.seqlen_kv, problem.head_dim)
        statistics = (heads_q, 1, padded_queries(problem))
        self.shared_heads = problem.group > 1
        self.q, self.do = (k.tensor(name, queries, problem.dtype) for name in ("Q", "dO"))
        self.k, self.v = (k.tensor(name, keys, problem.dtype) for name in ("K", "V"))
        self.lse, self.dpsum = (k.tensor(name, statistics, "fp32") for name in ("LSE_log2", "dPsum"))
        self.dq = k.tensor("dQ_accum", queries, "fp32", role="output")
        suffix, dtype = ("_accum", "fp32") if self.shared_heads else ("", problem.dtype)
        self.dk, self.dv = (k.tensor(f"{name}{suffix}", keys, dtype, role="output") for name in ("dK", "dV"))
