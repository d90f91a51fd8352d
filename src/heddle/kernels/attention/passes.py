"""The backward pass of attention, and both passes: sequences of launches that `direction` asks for.

Which launches a backward pass is made of differs between generations, see `backward_launches`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.kernels._composite import Arrays, Composite, Step
from heddle.kernels._parameters import Parameter
from heddle.kernels.attention.backward.gradients import gradients
from heddle.kernels.attention.backward.launches import FORWARD_WITH_LSE, LAUNCHES, backward_launches
from heddle.kernels.attention.reference import packed, unpacked
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine.spec import Machine

Direction = Literal["bwd", "fwd+bwd"]
DTYPES = ("fp16", "bf16")
"""Types of the gradients' kernels."""


class AttentionPasses(Composite):
    """Attention with `direction` bwd or fwd+bwd: the launches of the backward pass, the forward kernel before them."""

    name = "attention"
    summary = "the backward pass of attention, or both"

    def __init__(self, direction: Direction, parameters: tuple[Parameter, ...], forward: str = "attention") -> None:
        self.direction, self.parameters, self.forward = direction, parameters, forward

    @property
    def architectures(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those that have a backward pass."""
        return tuple(LAUNCHES)

    def steps(self, machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[Step, ...]:
        """Return the launches. Raises UserError where the architecture has no backward pass, or none in the type."""
        if params["dtype"] not in DTYPES:
            raise UserError(
                f"attention with direction={self.direction} takes {' and '.join(DTYPES)}, got dtype={params['dtype']}",
                hint="the forward pass alone (direction=fwd) takes fp8_e4m3 on some GPUs",
            )
        if machine.architecture not in LAUNCHES:
            names = ", ".join(LAUNCHES) or "no architecture"
            raise UserError(
                f"the backward pass of attention is not modelled for {machine.name} ({machine.architecture})",
                hint=f"it is for: {names}; direction=fwd runs everywhere",
            )
        sizes = {name: value for name, value in params.items() if name != "direction"}
        both = self.direction == "fwd+bwd"
        forward, made = self.forward, {"O": "forward.O"} if both else {}
        if both and mode != "fiber" and machine.architecture in FORWARD_WITH_LSE:
            forward, made = FORWARD_WITH_LSE[machine.architecture], {**made, "LSE": "forward.LSE"}
        found = [Step("forward", forward, {**sizes, "direction": "fwd"})] if both else []
        for step in backward_launches(machine, params, mode):
            feeds = {tensor: made.get(source, source) for tensor, source in {**made, **step.feeds}.items()}
            known = {parameter.name for parameter in step.kernel.parameters} - {"direction"}
            own = {name: value for name, value in sizes.items() if name in known}
            found.append(Step(step.name, step.kernel.name, own, feeds=feeds))
        return tuple(found)

    def reference(
        self, machine: Machine, params: Mapping[str, Any], mode: str, seed: int = 0
    ) -> tuple[Arrays, dict[str, NDArray[np.float64]]]:
        """Return seeded Q, K, V, dO with O and LSE of them, and the expected gradients."""
        problem = _problem(params)
        inputs, expected = gradients(problem, seed)
        inputs["Q_packed"] = packed(problem, inputs["Q"])
        wanted = {
            f"{step.name}.{tensor}": expected[gradient]
            for step in backward_launches(machine, params, mode)
            for tensor, gradient in step.gradients.items()
        }
        return inputs, wanted

    def written(
        self, params: Mapping[str, Any], step: Step, tensors: Mapping[str, NDArray[Any]], inputs: Arrays
    ) -> Arrays:
        """Return O as the backward pass reads it, too, where the forward kernel packs the query heads of a group."""
        if "O_packed" not in tensors:
            return dict(tensors)
        return {**tensors, "O": unpacked(_problem(params), tensors["O_packed"])}


def _problem(params: Mapping[str, Any]) -> AttentionProblem:
    names = {f.name for f in dataclasses.fields(AttentionProblem)}
    sizes = {name: value for name, value in params.items() if name in names}
    return AttentionProblem(**{**sizes, "causal": bool(sizes["causal"])})
