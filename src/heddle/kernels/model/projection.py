"""The projections around attention: Q, K and V in one product with rotary position embedding, and the output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.kernels._composite import Arrays, Composite, Step
from heddle.kernels.gemm.reference import angles, epilogue
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.model.shapes import DTYPE, MODEL, TOKENS, Model, cast_to, models, product, weights
from heddle.machine.spec import Machine


def qkv_params(model: Model, tokens: int, dtype: str) -> dict[str, Any]:
    """Return the parameters of the product that makes Q, K and V."""
    return {
        "m": tokens, "n": model.qkv_cols, "k": model.hidden, "dtype": dtype, "epilogue": "rope", **model.heads,
    }  # fmt: skip


def output_params(model: Model, tokens: int, dtype: str) -> dict[str, Any]:
    """Return the parameters of the product behind attention."""
    return {"m": tokens, "n": model.hidden, "k": model.query_cols, "dtype": dtype}


class Projection(Composite):
    """QKV projection with rotary position embedding, and output projection; what is between them is an input."""

    name = "projection"
    summary = "a layer's projections: Q, K, V with rotary position embedding; the output of attention"
    parameters = (MODEL, TOKENS, DTYPE)
    architectures = ("sm_80", "sm_90", "sm_100")

    def steps(self, machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[Step, ...]:
        """Return the two products."""
        model, tokens, dtype = models()[params["model"]], params["tokens"], params["dtype"]
        return (
            Step("qkv", "gemm", qkv_params(model, tokens, dtype), feeds={"A": "X", "B": "W_qkv"}),
            Step("output", "gemm", output_params(model, tokens, dtype), feeds={"A": "O", "B": "W_output"}),
        )

    def reference(
        self, machine: Machine, params: Mapping[str, Any], mode: str, seed: int = 0
    ) -> tuple[Arrays, dict[str, NDArray[np.float64]]]:
        """Return seeded X, O (what attention gives), the weights and the table T, and what both products write."""
        model, tokens, dtype = models()[params["model"]], params["tokens"], params["dtype"]
        generator = np.random.default_rng(seed)
        x, o = (cast_to(generator.standard_normal((tokens, cols)), dtype) for cols in (model.hidden, model.query_cols))
        qkv, output = (
            weights(generator, shape, dtype)
            for shape in ((model.qkv_cols, model.hidden), (model.hidden, model.query_cols))
        )
        problem = GemmProblem(**qkv_params(model, tokens, dtype))
        table = cast_to(angles(problem), dtype)
        wanted = {"qkv.C": epilogue(product(x, qkv), problem, table), "output.C": product(o, output)}
        return {"X": x, "O": o, "W_qkv": qkv, "W_output": output, "T": table}, wanted


PROJECTION = Projection()
