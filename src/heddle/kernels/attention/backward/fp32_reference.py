"""What the main kernel of a backward pass reads and writes that keeps row statistics along rows, dQ in fp32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.kernels.attention.backward.reference import backward, group_sums
from heddle.kernels.attention.backward.tensors import padded
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E


def reference(problem: AttentionProblem, seed: int) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
    """Return seeded inputs with the statistics that the kernel before gives, and the float64 outputs.

    LSE_log2 is the logarithm to base 2, 0 where a query sees no key. dQ_accum is dQ before it is scaled and rounded;
    dK_accum, dV_accum are dK, dV before they are rounded, dK_heads, dV_heads those of each query head. FlashAttention 2
    reads LSE and delta instead, as the forward kernel and the one before the main kernel give them.
    """
    found = backward(problem, seed)
    seen = (np.arange(problem.seqlen_q) + problem.diagonal >= 0) | (not problem.causal)
    lse = np.where(seen[None, :, None], found.lse, 0.0)
    inputs = {
        "Q": found.q,
        "K": found.k,
        "V": found.v,
        "dO": found.do,
        "LSE_log2": padded(problem, lse * LOG2_E, np.inf),
        "dPsum": padded(problem, found.delta),
        "LSE": found.lse,
        "delta": found.delta,
    }
    dk, dv = group_sums(problem, found.dk), group_sums(problem, found.dv)
    outputs = {"dQ_accum": found.dq / problem.scale, "dK": dk, "dV": dv, "dK_accum": dk, "dV_accum": dv}
    outputs |= {"dK_heads": found.dk, "dV_heads": found.dv}
    return inputs, outputs
