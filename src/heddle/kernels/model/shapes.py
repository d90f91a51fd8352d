"""Shapes of models, from `models.toml`, and the parameters that all parts of a model have."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
import numpy as np
from numpy.typing import NDArray

from heddle.ir.dtypes import NUMPY_NAMES
from heddle.kernels._parameters import Parameter
from heddle.kernels.w4a16.shape import SCHEMES

TABLE = Path(__file__).parent / "models.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Sizes of a model in elements; `source`: where they are published."""

    hidden: int
    layers: int
    heads_q: int
    heads_kv: int
    head_dim: int
    ffn: int
    vocab: int
    source: str

    @property
    def heads(self) -> dict[str, int]:
        """The parameters that the epilogue rope takes."""
        return {"head_dim": self.head_dim, "heads_q": self.heads_q, "heads_kv": self.heads_kv}

    @property
    def qkv_cols(self) -> int:
        """Columns of the QKV projection."""
        return (self.heads_q + 2 * self.heads_kv) * self.head_dim

    @property
    def query_cols(self) -> int:
        """Columns of all heads of Q, which are what attention gives."""
        return self.heads_q * self.head_dim


@functools.cache
def models() -> Mapping[str, Model]:
    """Return the models by name."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: Model(**row) for name, row in rows.items()}


MODEL = Parameter("model", str, "llama-3-8b", "shapes of which model", choices=tuple(models()), small="tiny")
TOKENS = Parameter("tokens", int, 4096, "vectors: batch times sequence length", small=72)
DTYPE = Parameter("dtype", str, "fp16", "type of all tensors", choices=("fp16", "bf16"))
PLAIN = "plain"
WEIGHTS = Parameter(
    "weights", str, PLAIN, "of the type of all tensors, or quantised as in w4a16 (fp16)", choices=(PLAIN, *SCHEMES)
)


def weights(generator: np.random.Generator, shape: tuple[int, int], dtype: str) -> NDArray[Any]:
    """Return seeded weights [outputs, inputs] whose products keep the size of what they multiply."""
    return cast_to(generator.standard_normal(shape) / np.sqrt(shape[1]), dtype)


def cast_to(values: NDArray[np.float64], dtype: str) -> NDArray[Any]:
    """Return values in an element type of kernels."""
    return values.astype(np.dtype(NUMPY_NAMES[dtype]))
