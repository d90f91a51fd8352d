"""What the kernels of a backward pass of attention have in common: the parameters and the problem."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, TypeVar

from heddle.kernels._kernel import Kernel, Parameter
from heddle.kernels.attention.check import complete_sizes
from heddle.kernels.attention.parameters import SIZES
from heddle.kernels.attention.shape import AttentionProblem

Config = TypeVar("Config")

PARAMETERS = (
    *SIZES,
    Parameter("dtype", str, "fp16", "type of Q, K, V and gradients", choices=("fp16", "bf16")),
)
"""Those of `attention` without the direction: each launch of a pass is given all of them."""


class BackwardKernel(Kernel[Config], ABC):
    """A launch of a backward pass; without a FIBER-native form where a kernel does not name one."""

    parameters = PARAMETERS
    native: Mapping[str, Any] = {}

    def check(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters, parsed and with defaults; raises UserError on unknown names and bad values."""
        return complete_sizes(super().check(params))

    def problem(self, params: Mapping[str, Any]) -> AttentionProblem:
        """Return the problem, its parameters checked one by one."""
        checked = self.check(params)
        return AttentionProblem(**{**checked, "causal": bool(checked["causal"])})
