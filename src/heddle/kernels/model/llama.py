"""A Llama model, or one layer of it, as the launches of a forward pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.kernels._composite import Arrays, Composite, Step
from heddle.kernels._parameters import Parameter
from heddle.kernels.attention.decode.attention import DECODE_ATTENTION
from heddle.kernels.attention.reference import packed
from heddle.kernels.model.llama_pass import Pass, asked_pass, planes_of, rows_of
from heddle.kernels.model.llama_reference import forward
from heddle.kernels.model.projection import output_step, qkv_steps
from heddle.kernels.model.shapes import MODEL
from heddle.kernels.w4a16.shape import SCHEMES
from heddle.machine.spec import Machine

PHASES = ("prefill", "decode")
PRECISIONS = ("fp16", "w4a16")
DTYPE = "fp16"


class Llama(Composite):
    """RMS norm, QKV projection, attention, output projection, RMS norm and FFN for each layer; norm and LM head.

    Both norms of a layer add the residual. The embedding look-up and the choice of a token are left out; the LM head
    multiplies the last token of each sequence, by fp16 weights.
    """

    name = "llama"
    summary = "a forward pass of a Llama model, or of one layer: norms, projections, attention, FFN, LM head"
    parameters = (
        MODEL,
        Parameter("phase", str, "prefill", "all tokens of the prompts, or the next one of each", choices=PHASES),
        Parameter("precision", str, "fp16", "of the weights of a layer; activations are fp16", choices=PRECISIONS),
        Parameter("scheme", str, "awq", "how w4a16 stores weights", choices=SCHEMES),
        Parameter("seqlen", int, 4096, "tokens of a sequence; decode: keys, that of the new token included", small=40),
        Parameter("batch", int, 1, "sequences"),
        Parameter("part", str, "model", "all layers and the LM head, or one layer", choices=("model", "layer")),
    )
    architectures = ("sm_80", "sm_90", "sm_100")

    def steps(self, machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[Step, ...]:
        """Return the launches."""
        asked = asked_pass(params)
        layer = _layer(asked, params["model"], machine, mode)
        return (*layer, *_head(asked)) if asked.whole else tuple(dataclasses.replace(s, count=1) for s in layer)

    def reference(
        self, machine: Machine, params: Mapping[str, Any], mode: str, seed: int = 0
    ) -> tuple[Arrays, dict[str, NDArray[np.float64]]]:
        """Return seeded inputs and weights, and what the last launches must write; all layers are one in the chain."""
        return forward(asked_pass(params), seed)

    def written(
        self, params: Mapping[str, Any], step: Step, tensors: Mapping[str, NDArray[Any]], inputs: Arrays
    ) -> Arrays:
        """Return what a step has written, with Q, K and V, and the last tokens, by names of their own."""
        asked, found = asked_pass(params), dict(tensors)
        if step.name in ("qkv", "rope"):
            found |= _heads(asked, tensors["C" if step.name == "qkv" else "Y"], inputs)
        elif step.name == "attention":
            name, rows = next((name, tensors[name]) for name in ("O_packed", "O") if name in tensors)
            found["rows"] = rows_of(asked, rows, is_packed=name == "O_packed")
        elif step.name == "final_norm":
            found["last"] = tensors["Y"].reshape(asked.batch, asked.queries, -1)[:, -1]
        return found


def _layer(asked: Pass, model: str, machine: Machine, mode: str) -> tuple[Step, ...]:
    """Return the launches of a layer, each as often as there are layers."""
    found, tokens, count = asked.model, asked.tokens, asked.model.layers
    sizes = found, tokens, DTYPE, asked.weights
    norm = {"rows": tokens, "hidden": found.hidden, "dtype": DTYPE, "residual": 1}
    projected = qkv_steps(*sizes, "attention_norm.Y", count)
    attention, rows = _attention(asked, projected[-1].name, machine, mode)
    norm_feeds = {"X": "output.C", "R": "attention_norm.S", "W": "W_ffn_norm"}
    network = {"model": model, "tokens": tokens, "dtype": DTYPE, "weights": asked.weights}
    return (
        Step("attention_norm", "rmsnorm", norm, count, {"W": "W_attention_norm"}),
        *projected,
        attention,
        output_step(*sizes, rows, count),
        Step("ffn_norm", "rmsnorm", norm, count, norm_feeds),
        Step("ffn", "ffn", network, count, {"X": "ffn_norm.Y"}),
    )


def _attention(asked: Pass, rotated: str, machine: Machine, mode: str) -> tuple[Step, str]:
    """Return attention, Q and K by the launch `rotated`, and where its rows are then."""
    sizes = {**asked.model.heads, "batch": asked.batch, "seqlen_kv": asked.seqlen, "dtype": DTYPE, "direction": "fwd"}
    feeds = {"Q": f"{rotated}.Q", "K": f"{rotated}.K", "V": "qkv.V"}
    if asked.decodes:
        params = DECODE_ATTENTION.check(sizes)
        last = DECODE_ATTENTION.steps(machine, params, mode)[-1].name
        return Step("attention", "decode_attention", params, asked.model.layers, feeds), f"attention.{last}.O"
    params = {**sizes, "seqlen_q": asked.seqlen, "causal": 1}
    feeds["Q_packed"] = f"{rotated}.Q_packed"
    return Step("attention", "attention", params, asked.model.layers, feeds), "attention.rows"


def _head(asked: Pass) -> tuple[Step, ...]:
    """Return what follows the last layer."""
    norm = {"rows": asked.tokens, "hidden": asked.model.hidden, "dtype": DTYPE, "residual": 1}
    head = {"m": asked.batch, "n": asked.model.vocab, "k": asked.model.hidden, "dtype": DTYPE}
    feeds = {"X": "ffn.down.C", "R": "ffn_norm.S", "W": "W_final_norm"}
    return (
        Step("final_norm", "rmsnorm", norm, 1, feeds),
        Step("lm_head", "gemm", head, 1, {"A": "final_norm.last", "B": "W_head"}),
    )


def _heads(asked: Pass, rows: NDArray[Any], inputs: Arrays) -> Arrays:
    """Return Q, K, V [batch x heads, tokens, head_dim] of rows of the QKV projection, of Q and K alone by `rope`.

    In decoding the keys and values of earlier tokens stand before those of the new one.
    """
    found = {}
    for name, plane in planes_of(asked, rows).items():
        cached = inputs.get(f"{name}_cache")
        found[name] = plane if cached is None else np.concatenate((cached, plane), axis=1)
    return found if asked.decodes or "Q" not in found else {**found, "Q_packed": packed(asked.attention, found["Q"])}


LLAMA = Llama()
