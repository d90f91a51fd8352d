"""The registry entries of attention: parameters, and the kernel that each GPU runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._composite import Composite
from heddle.kernels._kernel import Kernel, Parameter
from heddle.kernels._native import NativeKernels
from heddle.kernels.attention.check import check_config, check_problem, complete_sizes
from heddle.kernels.attention.forward.sm80_fa2 import FA2
from heddle.kernels.attention.forward.sm90_fa3 import FA3
from heddle.kernels.attention.forward.sm100_fa4 import FA4
from heddle.kernels.attention.implementation import Implementation
from heddle.kernels.attention.native import NATIVE
from heddle.kernels.attention.parameters import SIZES
from heddle.kernels.attention.passes import AttentionPasses
from heddle.kernels.attention.reference import reference
from heddle.kernels.attention.shape import TILE, AttentionConfig, AttentionProblem
from heddle.machine.spec import Machine

CURRENT: Mapping[str, Implementation] = {"sm_80": FA2, "sm_90": FA3, "sm_100": FA4}
"""The kernel of `attention`, by architecture."""
OLDER: Mapping[str, Implementation] = {"sm_80": FA2, "sm_90": FA2, "sm_100": FA2}
"""The kernel of `attention_fa2`: the code for A100, which later GPUs run too."""

PARAMETERS = (
    *SIZES,
    Parameter("dtype", str, "fp16", "type of Q, K and V", choices=("fp16", "bf16", "fp8_e4m3")),
    Parameter("direction", str, "fwd", "forward, backward, both passes", choices=("fwd", "bwd", "fwd+bwd")),
)
FORWARD_ONLY = (*PARAMETERS[:-1], Parameter("direction", str, "fwd", "forward", choices=("fwd",)))
PASSES = {direction: AttentionPasses(direction, PARAMETERS) for direction in ("bwd", "fwd+bwd")}
"""What `direction` asks for beside the forward kernel."""


class Attention(Kernel[AttentionConfig]):
    """O = softmax(Q K^T / sqrt(d)) V of every head; `implementations` by architecture."""

    tile = TILE

    def __init__(
        self,
        name: str,
        summary: str,
        implementations: Mapping[str, Implementation],
        native: NativeKernels,
        parameters: tuple[Parameter, ...],
        *,
        lse: bool = False,
    ) -> None:
        self.name, self.summary, self.implementations, self.native = name, summary, implementations, native
        self.architectures, self.parameters, self.lse = tuple(implementations), parameters, lse

    def composite(self, params: Mapping[str, Any]) -> Composite | None:
        """Return the launches of a backward pass, or of both passes."""
        return PASSES.get(params.get("direction", "fwd"))

    def check(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters, parsed and with defaults; raises UserError on unknown names and bad values."""
        return complete_sizes(super().check(params))

    def problem(self, params: Mapping[str, Any]) -> AttentionProblem:
        """Return the problem, its parameters checked one by one."""
        checked = self.check(params)
        if (direction := checked.pop("direction")) != "fwd":
            raise UserError(
                f"{self.name} with direction={direction} is a sequence of launches and has no program of its own"
            )
        return AttentionProblem(**{**checked, "causal": bool(checked["causal"]), "lse": self.lse})

    def simt_candidates(self, machine: Machine, params: Mapping[str, Any]) -> list[AttentionConfig]:
        """Return the one configuration that the open kernel takes."""
        problem, chosen = self.problem(params), self.implementations[machine.architecture]
        check_problem(problem, chosen, machine)
        return [chosen.config(problem, machine)]

    def simt_build(
        self, machine: Machine, params: Mapping[str, Any], config: AttentionConfig | None = None
    ) -> TileProgram:
        """Return the tile program; without a configuration that of the open kernel."""
        problem, chosen = self.problem(params), self.implementations[machine.architecture]
        check_problem(problem, chosen, machine)
        config = config or chosen.config(problem, machine)
        check_config(config, chosen.shared_bytes(problem, config), machine)
        chosen.check(problem, config, machine)
        items = chosen.work_items(problem, config)
        return chosen.kernel.build(
            chosen.target(machine),
            problem,
            config,
            items,
            chosen.clusters(len(items["row"]), config, machine),
            params={**self.check(params), "config": config.label()},
        )

    def early_release(self, architecture: str) -> tuple[list[Mapping[str, Any]], str]:
        """Return pins of the control, as it is and without clusters, or why there is none."""
        found = self.implementations[architecture]
        if found.schedule == "fa3":
            return [{"early_release": 1}, {"early_release": 1, "cluster": 1}], ""
        return super().early_release(found.architecture or architecture)

    def reference(
        self, params: Mapping[str, Any], seed: int = 0
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
        """Return seeded inputs by tensor name and the expected output in float64; a program has some of the tensors."""
        return reference(self.problem(params), seed)

    def flops(self, params: Mapping[str, Any]) -> int:
        """Return 4 B H Sq Skv d, half of it if causal."""
        return self.problem(params).flops


ATTENTION = Attention(
    "attention",
    "softmax(Q K^T / sqrt(d)) V and its gradients; FlashAttention of the generation",
    CURRENT,
    NATIVE,
    PARAMETERS,
)
ATTENTION_FA2 = Attention(
    "attention_fa2", "forward by FlashAttention 2, whatever the generation", OLDER, {}, FORWARD_ONLY
)
ATTENTION_LSE = Attention(
    "attention_lse",
    "forward on A100, with the logarithm of each row's sum of exponentials written for a backward pass",
    {"sm_80": FA2},
    {},
    FORWARD_ONLY,
    lse=True,
)
