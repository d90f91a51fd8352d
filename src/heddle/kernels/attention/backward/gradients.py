"""What a whole backward pass of attention reads, and what it must write."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.ir.dtypes import NUMPY_NAMES
from heddle.kernels.attention.backward.reference import backward, group_sums
from heddle.kernels.attention.shape import AttentionProblem

Arrays = dict[str, NDArray[Any]]
Wide = NDArray[np.float64]


def gradients(problem: AttentionProblem, seed: int) -> tuple[Arrays, dict[str, Wide]]:
    """Return ({"Q", "K", "V", "dO", "O", "LSE"}, {"dQ", "dK", "dV"}) with seeded normal Q, K, V and dO.

    Q, O, dO, dQ: [batch * heads_q, seqlen_q, d]; K, V, dK, dV: [batch * heads_kv, seqlen_kv, d]; LSE (fp32, natural
    logarithm of the sum of a row): [batch * heads_q, seqlen_q]. O is rounded, as the backward pass reads it.
    """
    found, dtype = backward(problem, seed), np.dtype(NUMPY_NAMES[problem.dtype])
    exact = {"Q": found.q, "K": found.k, "V": found.v, "dO": found.do, "O": found.o}
    inputs: Arrays = {name: array.astype(dtype) for name, array in exact.items()}
    seen = (np.arange(problem.seqlen_q) + problem.diagonal >= 0) | (not problem.causal)
    inputs["LSE"] = np.where(seen, found.lse[..., 0], 0.0).astype(np.float32)
    sums = {"dK": group_sums(problem, found.dk), "dV": group_sums(problem, found.dv)}
    return inputs, {"dQ": found.dq, **sums}
