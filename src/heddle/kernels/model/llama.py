"""A Llama model, or one layer of it, as the launches of a forward pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.kernels._composite import Arrays, Composite, Step
from heddle.kernels._parameters import Parameter
from heddle.kernels.attention.reference import packed
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.model.llama_reference import forward
from heddle.kernels.model.projection import output_params, qkv_params
from heddle.kernels.model.shapes import MODEL, Model, models
from heddle.machine.spec import Machine

PHASES = ("prefill", "decode")
PRECISIONS = ("fp16", "w4a16")


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """A checked question: the model, which launches, tokens of a sequence that go in, and how many sequences."""

    model: Model
    batch: int
    seqlen: int
    whole: bool

    @property
    def tokens(self) -> int:
        """Vectors that pass through a layer."""
        return self.batch * self.seqlen

    @property
    def attention(self) -> AttentionProblem:
        """The attention of a layer."""
        return AttentionProblem(
            batch=self.batch, heads_q=self.model.heads_q, heads_kv=self.model.heads_kv, seqlen_q=self.seqlen,
            seqlen_kv=self.seqlen, head_dim=self.model.head_dim, causal=True, dtype="fp16",
        )  # fmt: skip


class Llama(Composite):
    """RMS norm, QKV projection, attention, output projection, RMS norm and FFN for each layer; norm and LM head.

    Both norms of a layer add the residual. The embedding look-up and the choice of a token are left out; the LM head
    multiplies the last token of each sequence.
    """

    name = "llama"
    summary = "a forward pass of a Llama model, or of one layer: norms, projections, attention, FFN, LM head"
    parameters = (
        MODEL,
        Parameter("phase", str, "prefill", "prefill: all tokens of the prompts", choices=PHASES),
        Parameter("precision", str, "fp16", "of weights and activations", choices=PRECISIONS),
        Parameter("seqlen", int, 4096, "tokens of a sequence", small=40),
        Parameter("batch", int, 1, "sequences"),
        Parameter("part", str, "model", "all layers and the LM head, or one layer", choices=("model", "layer")),
    )
    architectures = ("sm_80", "sm_90", "sm_100")

    def steps(self, machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[Step, ...]:
        """Return the launches. Raises UserError for what is not there."""
        _check(params)
        asked = _pass(params)
        layer = _layer(asked, params["model"])
        return (*layer, *_head(asked)) if asked.whole else tuple(dataclasses.replace(s, count=1) for s in layer)

    def reference(
        self, machine: Machine, params: Mapping[str, Any], mode: str, seed: int = 0
    ) -> tuple[Arrays, dict[str, NDArray[np.float64]]]:
        """Return seeded inputs and weights, and what the last launches must write; all layers are one in the chain."""
        _check(params)
        asked = _pass(params)
        return forward(asked.model, asked.attention, seed, whole=asked.whole)

    def written(self, params: Mapping[str, Any], step: Step, tensors: Mapping[str, NDArray[Any]]) -> Arrays:
        """Return what a step has written, with Q, K and V, and the last tokens, by names of their own."""
        asked, found = _pass(params), dict(tensors)
        if step.name == "qkv":
            found |= _heads(asked, tensors["C"])
        elif step.name == "attention":
            name, rows = next((name, tensors[name]) for name in ("O_packed", "O") if name in tensors)
            found["rows"] = _token_rows(asked, rows, is_packed=name == "O_packed")
        elif step.name == "final_norm":
            found["last"] = tensors["Y"].reshape(asked.batch, asked.seqlen, -1)[:, -1]
        return found


def _pass(params: Mapping[str, Any]) -> Pass:
    return Pass(models()[params["model"]], params["batch"], params["seqlen"], params["part"] == "model")


def _check(params: Mapping[str, Any]) -> None:
    if params["phase"] == "decode":
        raise UserError("phase=decode of llama is not modelled yet", hint="phase=prefill is")
    if params["precision"] == "w4a16":
        raise UserError(
            "precision=w4a16 of llama is not modelled yet", hint="precision=fp16 is; w4a16 is a kernel of its own"
        )


def _layer(asked: Pass, model: str) -> tuple[Step, ...]:
    """Return the launches of a layer, each as often as there are layers."""
    found, tokens = asked.model, asked.tokens
    norm = {"rows": tokens, "hidden": found.hidden, "dtype": "fp16", "residual": 1}
    sizes = {
        "batch": asked.batch,
        "seqlen_q": asked.seqlen,
        "seqlen_kv": asked.seqlen,
        "causal": 1,
        "dtype": "fp16",
        "direction": "fwd",
    }
    attention = {**found.heads, **sizes}
    heads = {name: f"qkv.{name}" for name in ("Q", "Q_packed", "K", "V")}
    norm_feeds = {"X": "output.C", "R": "attention_norm.S", "W": "W_ffn_norm"}
    qkv_feeds = {"A": "attention_norm.Y", "B": "W_qkv"}
    return (
        Step("attention_norm", "rmsnorm", norm, found.layers, {"W": "W_attention_norm"}),
        Step("qkv", "gemm", qkv_params(found, tokens, "fp16"), found.layers, qkv_feeds),
        Step("attention", "attention", attention, found.layers, heads),
        Step("output", "gemm", output_params(found, tokens, "fp16"), found.layers,
             {"A": "attention.rows", "B": "W_output"}),
        Step("ffn_norm", "rmsnorm", norm, found.layers, norm_feeds),
        Step("ffn", "ffn", {"model": model, "tokens": tokens, "dtype": "fp16"}, found.layers, {"X": "ffn_norm.Y"}),
    )  # fmt: skip


def _head(asked: Pass) -> tuple[Step, ...]:
    """Return what follows the last layer."""
    norm = {"rows": asked.tokens, "hidden": asked.model.hidden, "dtype": "fp16", "residual": 1}
    head = {"m": asked.batch, "n": asked.model.vocab, "k": asked.model.hidden, "dtype": "fp16"}
    feeds = {"X": "ffn.down.C", "R": "ffn_norm.S", "W": "W_final_norm"}
    return (
        Step("final_norm", "rmsnorm", norm, 1, feeds),
        Step("lm_head", "gemm", head, 1, {"A": "final_norm.last", "B": "W_head"}),
    )


def _heads(asked: Pass, rows: NDArray[Any]) -> Arrays:
    """Return Q, K, V [batch x heads, seqlen, head_dim] of the rows of the QKV projection."""
    model = asked.model
    counts = (model.heads_q, model.heads_kv, model.heads_kv)
    edges = np.cumsum([0, *counts]) * model.head_dim
    found = {}
    for index, name in enumerate(("Q", "K", "V")):
        columns = rows[:, edges[index] : edges[index + 1]]
        planes = columns.reshape(asked.batch, asked.seqlen, counts[index], model.head_dim).transpose(0, 2, 1, 3)
        found[name] = np.ascontiguousarray(planes).reshape(-1, asked.seqlen, model.head_dim)
    return {**found, "Q_packed": packed(asked.attention, found["Q"])}


def _token_rows(asked: Pass, planes: NDArray[Any], *, is_packed: bool) -> NDArray[Any]:
    """Return [tokens, heads x head_dim] of what attention has written plane by plane."""
    model, group = asked.model, asked.model.heads_q // asked.model.heads_kv
    if is_packed:
        planes = planes.reshape(-1, asked.seqlen, group, model.head_dim).transpose(0, 2, 1, 3)
    planes = planes.reshape(asked.batch, model.heads_q, asked.seqlen, model.head_dim).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(planes).reshape(asked.tokens, model.query_cols)


LLAMA = Llama()
