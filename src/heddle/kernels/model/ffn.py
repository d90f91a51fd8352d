"""The feed-forward network of a layer: gate and up projection, SiLU of the gate times the other, down projection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.kernels._composite import Arrays, Composite, Step
from heddle.kernels.gemm.reference import epilogue
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.model.products import made_weights, product_step
from heddle.kernels.model.shapes import DTYPE, MODEL, PLAIN, TOKENS, WEIGHTS, Model, cast_to, models
from heddle.kernels.model.silu_mul import halves_gated
from heddle.machine.spec import Machine


class Ffn(Composite):
    """Y = (silu(X G^T) * (X U^T)) D^T.

    Rows of G and U lie in turn in one weight, 8 of each, and the epilogue gates; of quantised weights those of G come
    first, and a launch of its own gates.
    """

    name = "ffn"
    summary = "a layer's feed-forward network: gate and up projection with SiLU, down projection"
    parameters = (MODEL, TOKENS, DTYPE, WEIGHTS)
    architectures = ("sm_80", "sm_90", "sm_100")

    def steps(self, machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[Step, ...]:
        """Return the launches."""
        model, common = models()[params["model"]], {"m": params["tokens"], "dtype": params["dtype"]}
        kind = params["weights"]
        gate_up = {**common, "n": 2 * model.ffn, "k": model.hidden}
        down = {**common, "n": model.hidden, "k": model.ffn}
        if kind == PLAIN:
            gated = product_step("gate_up", gate_up | {"epilogue": "silu_mul"}, kind, "X")
            return gated, product_step("down", down, kind, "gate_up.C")
        gate = {"rows": params["tokens"], "cols": model.ffn, "dtype": params["dtype"]}
        return (
            product_step("gate_up", gate_up, kind, "X"),
            Step("silu_mul", "silu_mul", gate, feeds={"H": "gate_up.C"}),
            product_step("down", down, kind, "silu_mul.Y"),
        )

    def reference(
        self, machine: Machine, params: Mapping[str, Any], mode: str, seed: int = 0
    ) -> tuple[Arrays, dict[str, NDArray[np.float64]]]:
        """Return seeded X and weights, and what the down projection must write."""
        model, dtype, generator = models()[params["model"]], params["dtype"], np.random.default_rng(seed)
        x = cast_to(generator.standard_normal((params["tokens"], model.hidden)), dtype)
        given, wide = ffn_weights(generator, model, params["weights"], dtype)
        return {"X": x, **given}, {"down.C": ffn_of(x.astype(np.float64), wide, params["weights"])}


def ffn_weights(
    generator: np.random.Generator, model: Model, kind: str, dtype: str
) -> tuple[Arrays, dict[str, NDArray[np.float64]]]:
    """Return seeded weights as the launches are fed them, and by launch what they stand for."""
    shapes = {"gate_up": (2 * model.ffn, model.hidden), "down": (model.hidden, model.ffn)}
    made = {name: made_weights(generator, name, shape, kind, dtype) for name, shape in shapes.items()}
    given = {name: array for arrays, _ in made.values() for name, array in arrays.items()}
    return given, {name: wide for name, (_, wide) in made.items()}


def ffn_of(x: NDArray[np.float64], wide: Mapping[str, NDArray[np.float64]], kind: str) -> NDArray[np.float64]:
    """Return the network of rows [tokens, hidden] in float64."""
    both = x @ wide["gate_up"].T
    sizes = {"m": len(x), "n": both.shape[1], "k": x.shape[1]}
    plain = GemmProblem(**sizes, dtype="fp32", epilogue="silu_mul")
    inside = epilogue(both, plain) if kind == PLAIN else halves_gated(both)
    found: NDArray[np.float64] = inside @ wide["down"].T
    return found


FFN = Ffn()
