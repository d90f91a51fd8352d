"""The feed-forward network of a layer: gate and up projection with SiLU in their epilogue, down projection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.kernels._composite import Arrays, Composite, Step
from heddle.kernels.gemm.reference import epilogue
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.model.shapes import DTYPE, MODEL, TOKENS, cast_to, models, product, weights
from heddle.machine.spec import Machine


class Ffn(Composite):
    """Y = (silu(X G^T) * (X U^T)) D^T; rows of G and U lie in turn in one weight, 8 of each."""

    name = "ffn"
    summary = "a layer's feed-forward network: gate and up projection with SiLU, down projection"
    parameters = (MODEL, TOKENS, DTYPE)
    architectures = ("sm_80", "sm_90", "sm_100")

    def steps(self, machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[Step, ...]:
        """Return the two products."""
        model, common = models()[params["model"]], {"m": params["tokens"], "dtype": params["dtype"]}
        gate_up = {**common, "n": 2 * model.ffn, "k": model.hidden, "epilogue": "silu_mul"}
        down = {**common, "n": model.hidden, "k": model.ffn}
        return (
            Step("gate_up", "gemm", gate_up, feeds={"A": "X", "B": "W_gate_up"}),
            Step("down", "gemm", down, feeds={"A": "gate_up.C", "B": "W_down"}),
        )

    def reference(
        self, machine: Machine, params: Mapping[str, Any], mode: str, seed: int = 0
    ) -> tuple[Arrays, dict[str, NDArray[np.float64]]]:
        """Return seeded X, W_gate_up, W_down, and what the down projection must write."""
        model, dtype, generator = models()[params["model"]], params["dtype"], np.random.default_rng(seed)
        x = cast_to(generator.standard_normal((params["tokens"], model.hidden)), dtype)
        gate_up, down = (
            weights(generator, shape, dtype) for shape in ((2 * model.ffn, model.hidden), (model.hidden, model.ffn))
        )
        problem = GemmProblem(m=params["tokens"], n=2 * model.ffn, k=model.hidden, dtype=dtype, epilogue="silu_mul")
        inside = epilogue(product(x, gate_up), problem)
        return {"X": x, "W_gate_up": gate_up, "W_down": down}, {"down.C": product(inside, down)}


FFN = Ffn()
