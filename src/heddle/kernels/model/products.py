"""The products of a layer, by weights of the type of the activations or by quantised ones, which no epilogue follows.

Servers run quantised products (AWQ, AQLM) in the same way: rotary position embedding and SiLU are launches of their
own behind them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.kernels._composite import Arrays, Step
from heddle.kernels.model.shapes import PLAIN, weights
from heddle.kernels.w4a16.reference import quantised
from heddle.kernels.w4a16.shape import GROUPS, W4Problem

AWQ_SIZE = 0.125
"""Of scales: differences of weights and zero points of 4 bits have a deviation of 6.5; products keep their size."""


def product_step(name: str, sizes: dict[str, Any], kind: str, source: str, count: int = 1) -> Step:
    """Return the launch of a product C = `source` W^T; `sizes`: parameters of gemm; `kind`: how weights are stored."""
    if kind == PLAIN:
        return Step(name, "gemm", sizes, count, {"A": source, "B": f"W_{name}"})
    if sizes["dtype"] != "fp16":
        raise UserError(f"quantised weights multiply fp16; dtype is {sizes['dtype']}", hint="dtype=fp16")
    params = {**{size: sizes[size] for size in "mnk"}, "scheme": kind, "group": GROUPS[0], "dtype": "fp16"}
    return Step(name, "w4a16", params, count, {"A": source, **{part: f"{part}_{name}" for part in "QSZKRT"}})


def made_weights(
    generator: np.random.Generator, name: str, shape: tuple[int, int], kind: str, dtype: str
) -> tuple[Arrays, NDArray[np.float64]]:
    """Return seeded weights as `product_step` is fed them, and what they stand for [outputs, inputs] in float64."""
    if kind == PLAIN:
        plain = weights(generator, shape, dtype)
        return {f"W_{name}": plain}, plain.astype(np.float64)
    problem = W4Problem(m=1, n=shape[0], k=shape[1], scheme=kind, group=GROUPS[0], dtype=dtype)
    stored, wide = quantised(problem, generator, 1.0 if problem.looks_up else AWQ_SIZE)
    return {f"{part}_{name}": array for part, array in stored.items()}, wide.T
