"""The registry entry of GEMM: parameters, and the choice of the kernel for a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.ir.tile import TileProgram
from heddle.kernels._kernel import Kernel, Parameter
from heddle.kernels._rounding import ceil_div
from heddle.kernels.gemm.candidates import candidates
from heddle.kernels.gemm.check import check_config, check_epilogue, check_items, check_problem, check_sizes
from heddle.kernels.gemm.native import NATIVE
from heddle.kernels.gemm.raster import item_count, work_items
from heddle.kernels.gemm.reference import reference
from heddle.kernels.gemm.shape import EPILOGUES, HEAD_DIMS, TILE, GemmConfig, GemmProblem
from heddle.kernels.gemm.sm80 import gemm_sm80
from heddle.kernels.gemm.sm90_cooperative import gemm_sm90_cooperative
from heddle.kernels.gemm.sm90_pingpong import gemm_sm90_pingpong
from heddle.kernels.gemm.sm100 import gemm_sm100
from heddle.machine.spec import Machine

KERNEL_OF_SCHEDULE = {
    "multistage": gemm_sm80,
    "cooperative": gemm_sm90_cooperative,
    "pingpong": gemm_sm90_pingpong,
    "tcgen05": gemm_sm100,
}


HEADS = ("head_dim", "heads_q", "heads_kv")
"""Parameters of the epilogue rope."""


class Gemm(Kernel[GemmConfig]):
    """C[m, n] = A[m, k] B[n, k]^T; A row-major, B stored K-major, fp32 accumulation, output of the input type."""

    name = "gemm"
    summary = "C[m, n] = A[m, k] B[k, n], B stored K-major, fp32 accumulation, output of the input type"
    parameters = (
        Parameter("m", int, 4096, "rows of A and C"),
        Parameter("n", int, 4096, "rows of B, columns of C"),
        Parameter("k", int, 4096, "columns of A and B, summed over"),
        Parameter("dtype", str, "fp16", "type of A, B and C", choices=("fp16", "bf16", "fp8_e4m3")),
        Parameter(
            "epilogue", str, "none",
            "silu_mul: of 16 rows of B 8 are gates, 8 their factors, and C[m, n / 2] = silu(gate) * factor; "
            "rope: columns of C are heads of Q, K, V, and pairs of columns of Q and K are rotated",
            choices=EPILOGUES,
        ),
        Parameter("head_dim", int, 128, "rope: columns of a head", choices=HEAD_DIMS),
        Parameter("heads_q", int, 16, "rope: heads of Q", small=2),
        Parameter("heads_kv", int, 8, "rope: heads of K, and of V", small=1),
    )  # fmt: skip
    tile = TILE
    architectures = ("sm_80", "sm_90", "sm_100")
    native = NATIVE

    def problem(self, params: Mapping[str, Any]) -> GemmProblem:
        """Return the checked problem."""
        problem = GemmProblem(**self._named(params))
        check_epilogue(problem)
        return problem

    def _named(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters that count for the epilogue."""
        checked = self.check(params)
        return checked if checked["epilogue"] == "rope" else {n: v for n, v in checked.items() if n not in HEADS}

    def simt_candidates(self, machine: Machine, params: Mapping[str, Any]) -> list[GemmConfig]:
        """Return the tiles worth trying on a machine."""
        problem = self.problem(params)
        check_problem(problem, machine)
        return candidates(problem, machine)

    def library_candidates(self, library: str, machine: Machine, params: Mapping[str, Any]) -> list[GemmConfig]:
        """Return the tiles worth trying of a library of `libraries`."""
        problem = self.problem(params)
        check_problem(problem, machine)
        return candidates(problem, machine, library)

    def simt_build(self, machine: Machine, params: Mapping[str, Any], config: GemmConfig | None = None) -> TileProgram:
        """Return the tile program; without a configuration the first candidate is taken."""
        problem = self.problem(params)
        check_problem(problem, machine)
        config = config or candidates(problem, machine)[0]
        if config.schedule == "multistage" and config.split_k == 1:
            check_sizes(config)
            config = replace(config, stages=min(config.stages, ceil_div(problem.k, config.tile_k) + 1))
        check_config(problem, config, machine)
        check_items(problem, config)
        count = item_count(problem, config)
        clusters = count if config.schedule == "multistage" else min(count, machine.sms // config.cluster)
        wave = machine.sms // config.cluster
        items = work_items(problem, config, clusters, wave)
        return KERNEL_OF_SCHEDULE[config.schedule].build(
            machine.architecture,
            problem,
            config,
            items,
            clusters,
            params={**self._named(params), "config": config.label()},
        )

    def early_release(self, architecture: str) -> tuple[list[Mapping[str, Any]], str]:
        """Return pins of the control, or why there is none."""
        return ([{"early_release": 1}], "") if architecture == "sm_90" else super().early_release(architecture)

    def reference(
        self, params: Mapping[str, Any], seed: int = 0
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
        """Return seeded inputs by tensor name and the expected output in float64."""
        return reference(self.problem(params), seed)

    def flops(self, params: Mapping[str, Any]) -> int:
        """Return 2 m n k."""
        return self.problem(params).flops
