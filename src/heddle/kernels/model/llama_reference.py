"""Inputs of a Llama layer and what it must give, by NumPy in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.kernels._composite import Arrays
from heddle.kernels.attention.reference import attention
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.gemm.reference import angles, epilogue
from heddle.kernels.gemm.rope import TABLE
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.model.projection import qkv_params
from heddle.kernels.model.shapes import Model, cast_to, product, weights
from heddle.kernels.norm.shape import EPSILON

Wide = NDArray[np.float64]


def forward(model: Model, sizes: AttentionProblem, seed: int, *, whole: bool) -> tuple[Arrays, dict[str, Wide]]:
    """Return inputs and weights by name, and the logits of the last tokens, or what a layer's FFN gives (float64).

    X is what the layer before has added last, R the sum of all before it. The layers of a model have the weights of
    one in the chain of launches, where each launch runs once.
    """
    given = inputs(model, sizes, seed)
    tokens = sizes.batch * sizes.seqlen_q
    wide = {name: array.astype(np.float64) for name, array in given.items()}
    stream = wide["X"] + wide["R"]
    rotated = epilogue(
        product(normalised(stream, wide["W_attention_norm"]), given["W_qkv"]),
        GemmProblem(**qkv_params(model, tokens, sizes.dtype)),
        given[TABLE],
    )
    heads = attended(model, sizes, rotated)
    stream = stream + product(heads, given["W_output"])
    gated = GemmProblem(m=tokens, n=2 * model.ffn, k=model.hidden, dtype=sizes.dtype, epilogue="silu_mul")
    inside = epilogue(product(normalised(stream, wide["W_ffn_norm"]), given["W_gate_up"]), gated)
    last = product(inside, given["W_down"])
    if not whole:
        return given, {"ffn.down.C": last}
    final = normalised(stream + last, wide["W_final_norm"])[sizes.seqlen_q - 1 :: sizes.seqlen_q]
    return given, {"lm_head.C": product(final, given["W_head"])}


def inputs(model: Model, sizes: AttentionProblem, seed: int) -> Arrays:
    """Return seeded X, R, the weights of a layer, of the last norm and the LM head, and the table of positions."""
    generator, dtype, tokens = np.random.default_rng(seed), sizes.dtype, sizes.batch * sizes.seqlen_q
    given = {name: cast_to(generator.standard_normal((tokens, model.hidden)), dtype) for name in ("X", "R")}
    for name in ("attention", "ffn", "final"):
        given[f"W_{name}_norm"] = cast_to(1 + 0.1 * generator.standard_normal((1, model.hidden)), dtype)
    shapes = {
        "qkv": (model.qkv_cols, model.hidden),
        "output": (model.hidden, model.query_cols),
        "gate_up": (2 * model.ffn, model.hidden),
        "down": (model.hidden, model.ffn),
        "head": (model.vocab, model.hidden),
    }
    given |= {f"W_{name}": weights(generator, shape, dtype) for name, shape in shapes.items()}
    sequence = GemmProblem(**qkv_params(model, sizes.seqlen_q, dtype))
    given[TABLE] = cast_to(np.tile(angles(sequence), (sizes.batch, 1)), dtype)
    return given


def normalised(rows: Wide, weight: Wide) -> Wide:
    """Return rows over the root of their mean square, weighed."""
    found: Wide = rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + EPSILON) * weight
    return found


def attended(model: Model, sizes: AttentionProblem, rows: Wide) -> Wide:
    """Return [tokens, heads x head_dim]: attention of the rows of the QKV projection."""
    parts, first = [], 0
    for count in (model.heads_q, model.heads_kv, model.heads_kv):
        columns = rows[:, first : first + count * model.head_dim]
        planes = columns.reshape(sizes.batch, sizes.seqlen_q, count, model.head_dim).transpose(0, 2, 1, 3)
        parts.append(planes.reshape(-1, sizes.seqlen_q, model.head_dim))
        first += count * model.head_dim
    out = attention(sizes, *parts)
    planes = out.reshape(sizes.batch, model.heads_q, sizes.seqlen_q, model.head_dim).transpose(0, 2, 1, 3)
    found: Wide = planes.reshape(sizes.batch * sizes.seqlen_q, model.query_cols)
    return found
