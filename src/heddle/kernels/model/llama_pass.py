"""What is asked of a Llama model, and how its rows [tokens, heads x head_dim] become planes of heads and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.kernels._composite import Arrays
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.model.shapes import PLAIN, Model, models


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """The model, which launches, how many sequences of how many tokens, and how weights of a layer are stored.

    `decodes`: one token of each sequence goes in, and `seqlen` are the keys that it sees, its own included.
    """

    model: Model
    batch: int
    seqlen: int
    whole: bool
    decodes: bool
    weights: str

    @property
    def queries(self) -> int:
        """Tokens of each sequence that go in."""
        return 1 if self.decodes else self.seqlen

    @property
    def tokens(self) -> int:
        """Vectors that pass through a layer."""
        return self.batch * self.queries

    @property
    def attention(self) -> AttentionProblem:
        """The attention of a layer."""
        return AttentionProblem(
            batch=self.batch, heads_q=self.model.heads_q, heads_kv=self.model.heads_kv, seqlen_q=self.queries,
            seqlen_kv=self.seqlen, head_dim=self.model.head_dim, causal=not self.decodes, dtype="fp16",
        )  # fmt: skip


def asked_pass(params: Mapping[str, Any]) -> Pass:
    """Return what checked parameters ask for."""
    return Pass(
        model=models()[params["model"]],
        batch=params["batch"],
        seqlen=params["seqlen"],
        whole=params["part"] == "model",
        decodes=params["phase"] == "decode",
        weights=PLAIN if params["precision"] == "fp16" else params["scheme"],
    )


def planes_of(asked: Pass, rows: NDArray[Any]) -> Arrays:
    """Return Q, K, V [batch x heads, queries, head_dim], as far as the rows have their columns."""
    model = asked.model
    counts = {"Q": model.heads_q, "K": model.heads_kv, "V": model.heads_kv}
    found, first = {}, 0
    for name, count in counts.items():
        columns = rows[:, first : first + count * model.head_dim]
        first += count * model.head_dim
        if columns.shape[1]:
            planes = columns.reshape(asked.batch, asked.queries, count, model.head_dim).transpose(0, 2, 1, 3)
            found[name] = np.ascontiguousarray(planes).reshape(-1, asked.queries, model.head_dim)
    return found


def rows_of(asked: Pass, planes: NDArray[Any], *, is_packed: bool = False) -> NDArray[Any]:
    """Return [tokens, heads x head_dim] of what attention has written plane by plane."""
    model, group = asked.model, asked.model.heads_q // asked.model.heads_kv
    if is_packed:
        planes = planes.reshape(-1, asked.queries, group, model.head_dim).transpose(0, 2, 1, 3)
    planes = planes.reshape(asked.batch, model.heads_q, asked.queries, model.head_dim).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(planes).reshape(asked.tokens, model.query_cols)
