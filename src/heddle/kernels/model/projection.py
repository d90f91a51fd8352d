"""The projections around attention: Q, K and V in one product, rotary position embedding, and the output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.kernels._composite import Arrays, Composite, Step
from heddle.kernels.gemm.reference import angles, rotated
from heddle.kernels.gemm.rope import TABLE
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.model.products import made_weights, product_step
from heddle.kernels.model.shapes import DTYPE, MODEL, PLAIN, TOKENS, WEIGHTS, Model, cast_to, models
from heddle.machine.spec import Machine


def qkv_params(model: Model, tokens: int, dtype: str) -> dict[str, Any]:
    """Return the parameters of the product that makes Q, K and V."""
    return {
        "m": tokens, "n": model.qkv_cols, "k": model.hidden, "dtype": dtype, "epilogue": "rope", **model.heads,
    }  # fmt: skip


def qkv_steps(model: Model, tokens: int, dtype: str, kind: str, source: str, count: int = 1) -> tuple[Step, ...]:
    """Return the launches that make Q, K and V of `source`, those of Q and K rotated."""
    product = product_step("qkv", qkv_params(model, tokens, dtype), kind, source, count)
    if kind == PLAIN:
        return (product,)
    return product, Step("rope", "rope", {"rows": tokens, **model.heads, "dtype": dtype}, count, {"X": "qkv.C"})


def output_step(model: Model, tokens: int, dtype: str, kind: str, source: str, count: int = 1) -> Step:
    """Return the product behind attention, whose rows are `source`."""
    sizes = {"m": tokens, "n": model.hidden, "k": model.query_cols, "dtype": dtype}
    return product_step("output", sizes, kind, source, count)


class Projection(Composite):
    """QKV projection with rotary position embedding, and output projection; what is between them is an input."""

    name = "projection"
    summary = "a layer's projections: Q, K, V with rotary position embedding; the output of attention"
    parameters = (MODEL, TOKENS, DTYPE, WEIGHTS)
    architectures = ("sm_80", "sm_90", "sm_100")

    def steps(self, machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[Step, ...]:
        """Return the two products, and rotary position embedding where weights are quantised."""
        sizes = models()[params["model"]], params["tokens"], params["dtype"], params["weights"]
        return (*qkv_steps(*sizes, "X"), output_step(*sizes, "O"))

    def reference(
        self, machine: Machine, params: Mapping[str, Any], mode: str, seed: int = 0
    ) -> tuple[Arrays, dict[str, NDArray[np.float64]]]:
        """Return seeded X, O (what attention gives), the weights and the table T, and what the launches write."""
        model, tokens, dtype = models()[params["model"]], params["tokens"], params["dtype"]
        kind, generator = params["weights"], np.random.default_rng(seed)
        x, o = (cast_to(generator.standard_normal((tokens, cols)), dtype) for cols in (model.hidden, model.query_cols))
        (given, qkv), (more, output) = (
            made_weights(generator, name, shape, kind, dtype)
            for name, shape in (("qkv", (model.qkv_cols, model.hidden)), ("output", (model.hidden, model.query_cols)))
        )
        problem = GemmProblem(**qkv_params(model, tokens, dtype))
        table = cast_to(angles(problem), dtype)
        rows = rotated(x.astype(np.float64) @ qkv.T, table.astype(np.float64), problem)
        wanted = {"qkv.C": rows} if kind == PLAIN else {"rope.Y": rows[:, : problem.rotated_cols]}
        wanted["output.C"] = o.astype(np.float64) @ output.T
        return {"X": x, "O": o, **given, **more, TABLE: table}, wanted


PROJECTION = Projection()
