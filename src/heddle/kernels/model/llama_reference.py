"""Inputs of a Llama layer and what it must give, by NumPy in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.kernels._composite import Arrays
from heddle.kernels.attention.reference import attention
from heddle.kernels.gemm.reference import angles, rotated
from heddle.kernels.gemm.rope import TABLE
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.model.ffn import ffn_of, ffn_weights
from heddle.kernels.model.llama_pass import Pass, planes_of, rows_of
from heddle.kernels.model.products import made_weights
from heddle.kernels.model.projection import qkv_params
from heddle.kernels.model.shapes import PLAIN, cast_to
from heddle.kernels.norm.shape import EPSILON

Wide = NDArray[np.float64]
DTYPE = "fp16"


def forward(asked: Pass, seed: int) -> tuple[Arrays, dict[str, Wide]]:
    """Return inputs and weights by name, and the logits of the last tokens, or what a layer's FFN gives (float64).

    X is what the layer before has added last, R the sum of all before it. The layers of a model have the weights of
    one in the chain of launches, where each launch runs once.
    """
    given, products = inputs(asked, np.random.default_rng(seed))
    wide = {name: array.astype(np.float64) for name, array in given.items() if array.dtype == np.float16}
    stream = wide["X"] + wide["R"]
    problem = GemmProblem(**qkv_params(asked.model, asked.tokens, DTYPE))
    rows = rotated(normalised(stream, wide["W_attention_norm"]) @ products["qkv"].T, wide[TABLE], problem)
    stream = stream + attended(asked, rows, wide) @ products["output"].T
    last = ffn_of(normalised(stream, wide["W_ffn_norm"]), products, asked.weights)
    if not asked.whole:
        return given, {"ffn.down.C": last}
    final = normalised(stream + last, wide["W_final_norm"])[asked.queries - 1 :: asked.queries]
    return given, {"lm_head.C": final @ products["head"].T}


def inputs(asked: Pass, generator: np.random.Generator) -> tuple[Arrays, dict[str, Wide]]:
    """Return (seeded X, R, weights of a layer, of the last norm and the LM head, the table of positions, earlier keys
    and values; what the weights of products stand for).
    """
    model, shape = asked.model, (asked.tokens, asked.model.hidden)
    given = {name: cast_to(generator.standard_normal(shape), DTYPE) for name in ("X", "R")}
    for name in ("attention", "ffn", "final"):
        given[f"W_{name}_norm"] = cast_to(1 + 0.1 * generator.standard_normal((1, model.hidden)), DTYPE)
    products: dict[str, Wide] = {}
    for name, size, kind in (
        ("qkv", (model.qkv_cols, model.hidden), asked.weights),
        ("output", (model.hidden, model.query_cols), asked.weights),
        ("head", (model.vocab, model.hidden), PLAIN),
    ):
        stored, products[name] = made_weights(generator, name, size, kind, DTYPE)
        given |= stored
    stored, network = ffn_weights(generator, model, asked.weights, DTYPE)
    given |= stored
    positions = angles(GemmProblem(**qkv_params(model, asked.seqlen, DTYPE)))[-asked.queries :]
    given[TABLE] = cast_to(np.tile(positions, (asked.batch, 1)), DTYPE)
    if asked.decodes:
        earlier = (asked.batch * model.heads_kv, asked.seqlen - 1, model.head_dim)
        given |= {f"{name}_cache": cast_to(generator.standard_normal(earlier), DTYPE) for name in "KV"}
    return given, products | network


def normalised(rows: Wide, weight: Wide) -> Wide:
    """Return rows over the root of their mean square, weighed."""
    found: Wide = rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + EPSILON) * weight
    return found


def attended(asked: Pass, rows: Wide, wide: dict[str, Wide]) -> Wide:
    """Return [tokens, heads x head_dim]: attention of the rows of the QKV projection, and of earlier keys."""
    planes = planes_of(asked, rows)
    if asked.decodes:
        planes |= {name: np.concatenate((wide[f"{name}_cache"], planes[name]), axis=1) for name in "KV"}
    found: Wide = rows_of(asked, attention(asked.attention, planes["Q"], planes["K"], planes["V"]))
    return found
