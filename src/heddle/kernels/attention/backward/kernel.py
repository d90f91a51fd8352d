"""The registry entry of the main kernel of the backward pass, and the code that each GPU runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.ir.tile import TileProgram
from heddle.kernels._parameters import TileParameter
from heddle.kernels.attention.backward.base import BackwardKernel
from heddle.kernels.attention.backward.fp32_reference import reference
from heddle.kernels.attention.backward.shape import backward_flops
from heddle.kernels.attention.backward.sm80_fa2 import attention_bwd_fa2
from heddle.kernels.attention.backward.sm80_fa2_config import bwd_config, bwd_work_items, check_bwd
from heddle.kernels.attention.backward.sm90_fa3 import attention_bwd_fa3
from heddle.kernels.attention.backward.sm90_fa3_config import check_fa3_backward, fa3_backward_config
from heddle.kernels.attention.backward.sm90_fa3_items import backward_items
from heddle.kernels.attention.backward.sm100_fa4 import attention_bwd_fa4
from heddle.kernels.attention.backward.sm100_fa4_config import backward_items as fa4_backward_items
from heddle.kernels.attention.backward.sm100_fa4_config import check_fa4_backward, fa4_backward_config
from heddle.kernels.attention.native import NATIVE_BACKWARD
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import KernelFunction
from heddle.machine.spec import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardImplementation:
    """A kernel for one generation, built with (problem, config, items).

    `config` gives the open kernel's choice; `check` raises UserError on what the kernel cannot run.
    """

    config: Callable[[AttentionProblem, Machine], Any]
    check: Callable[[AttentionProblem, Any, Machine], None]
    items: Callable[[AttentionProblem, Any], dict[str, list[int]]]
    kernel: KernelFunction


FA3_BACKWARD = BackwardImplementation(
    config=fa3_backward_config, check=check_fa3_backward, items=backward_items, kernel=attention_bwd_fa3
)
FA2_BACKWARD = BackwardImplementation(
    config=bwd_config, check=check_bwd, items=bwd_work_items, kernel=attention_bwd_fa2
)
FA4_BACKWARD = BackwardImplementation(
    config=fa4_backward_config, check=check_fa4_backward, items=fa4_backward_items, kernel=attention_bwd_fa4
)
BACKWARD: Mapping[str, BackwardImplementation] = {"sm_80": FA2_BACKWARD, "sm_90": FA3_BACKWARD, "sm_100": FA4_BACKWARD}
"""The main kernel of the backward pass, by architecture."""

TILE = (
    TileParameter(
        "tile_m", int, "queries of one step",
        "fa2: multiples of 16 for each of the warps along them; fa3: of 16, with dq columns of 64, with dq rows of 128",
    ),
    TileParameter(
        "tile_n", int, "keys that a CTA keeps", "fa2: multiples of 16 for each of the warps along them; fa3: 128"
    ),
    TileParameter("dq", str, "fa3: how the warp groups divide the product for dQ", "swapped, columns, rows"),
    TileParameter("release", int, "fa3: 1 is the schedule of the first release, 0 the present one", "0, 1"),
    TileParameter("pairs", int, "fa4: 1 for pairs of CTAs, at head size 128", "0, 1"),
    TileParameter("stages", int, "fa2: blocks of Q in shared memory", "1, 2"),
    TileParameter("warps", int, "fa2: warps of a CTA", "4, 8"),
    TileParameter("scores_rows", int, "fa2: warps along the queries of S and dP", "a divisor of warps"),
    TileParameter("keys_rows", int, "fa2: warps along the keys of dK and dV", "a divisor of warps"),
    TileParameter("queries_rows", int, "fa2: warps along the queries of dQ", "a divisor of warps"),
)  # fmt: skip
"""What the fields of the configurations may be, for people."""


class AttentionBackward(BackwardKernel[Any]):
    """dK, dV and dQ before it is scaled and rounded, given the row statistics; `implementations` by architecture."""

    name = "attention_bwd"
    summary = "gradients of attention, the main kernel: dK, dV and dQ in fp32, from Q, K, V, dO and row statistics"
    tile, native = TILE, NATIVE_BACKWARD

    def __init__(self, implementations: Mapping[str, BackwardImplementation]) -> None:
        self.implementations, self.architectures = implementations, tuple(implementations)

    def simt_candidates(self, machine: Machine, params: Mapping[str, Any]) -> list[Any]:
        """Return the one configuration that the open kernel takes."""
        problem, chosen = self.problem(params), self.implementations[machine.architecture]
        config = chosen.config(problem, machine)
        chosen.check(problem, config, machine)
        return [config]

    def simt_build(self, machine: Machine, params: Mapping[str, Any], config: Any = None) -> TileProgram:
        """Return the tile program; without a configuration that of the open kernel."""
        problem, chosen = self.problem(params), self.implementations[machine.architecture]
        config = config or chosen.config(problem, machine)
        chosen.check(problem, config, machine)
        params = {**self.check(params), "config": config.label()}
        items = chosen.items(problem, config)
        return chosen.kernel.build(machine.architecture, problem, config, items, params=params)

    def reference(
        self, params: Mapping[str, Any], seed: int = 0
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
        """Return seeded inputs by tensor name and the expected outputs in float64; a program has some of them."""
        return reference(self.problem(params), seed)

    def flops(self, params: Mapping[str, Any]) -> int:
        """Return 10 B H Sq Skv d, half of it if causal: 2.5 times the forward pass."""
        return backward_flops(self.problem(params))


ATTENTION_BWD = AttentionBackward(BACKWARD)
