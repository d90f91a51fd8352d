"""The registry entry of W4A16 GEMM: parameters, and the choice of the kernel for a machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.ir.tile import TileProgram
from heddle.kernels._kernel import Kernel, Parameter
from heddle.kernels.w4a16.check import check_problem
from heddle.kernels.w4a16.choice import build, candidates
from heddle.kernels.w4a16.native import NATIVE
from heddle.kernels.w4a16.reference import reference
from heddle.kernels.w4a16.shape import AUTO, GROUPS, IMPLEMENTATIONS, SCHEMES, TILE, W4Config, W4Problem
from heddle.machine.spec import Machine


class W4Gemm(Kernel[W4Config]):
    """C[m, n] = A[m, k] W[k, n]; A and C fp16, W quantised, fp32 accumulation."""

    name = "w4a16"
    summary = (
        "C[m, n] = A[m, k] W[k, n], A and C fp16, weights of 4 bits (AWQ) or from codebooks (AQLM); not validated: no "
        "measurement by shape is public"
    )
    parameters = (
        Parameter("m", int, 4096, "rows of A and C: tokens"),
        Parameter("n", int, 4096, "columns of W and C"),
        Parameter("k", int, 4096, "columns of A, rows of W, summed over"),
        Parameter("scheme", str, "awq", "how weights are stored", choices=SCHEMES),
        Parameter(
            "group", int, 128, "weights of a column that share a scale and a zero point", choices=GROUPS, small=128
        ),
        Parameter("dtype", str, "fp16", "type of A, of scales and zero points, and of C", choices=("fp16",)),
        Parameter(
            "implementation", str, AUTO,
            "of today's kernel: mma.sync on every GPU, wgmma (H100), tcgen05 (B200), gemv (AQLM of up to 8 rows, every "
            "GPU); auto: gemv for one row, else the fastest of mma.sync and that of the GPU",
            choices=IMPLEMENTATIONS, today=True,
        ),
    )  # fmt: skip
    tile = TILE
    architectures = ("sm_80", "sm_90", "sm_100")
    native: Mapping[str, Any] = NATIVE

    def problem(self, params: Mapping[str, Any]) -> W4Problem:
        """Return the checked problem."""
        problem = W4Problem(**self.check(params))
        check_problem(problem)
        return problem

    def simt_candidates(self, machine: Machine, params: Mapping[str, Any]) -> list[W4Config]:
        """Return the tiles worth trying on a machine."""
        return candidates(self.problem(params), machine)

    def simt_build(self, machine: Machine, params: Mapping[str, Any], config: W4Config | None = None) -> TileProgram:
        """Return the tile program; without a configuration the first candidate is taken."""
        problem = self.problem(params)
        config = config or self.simt_candidates(machine, params)[0]
        names = {**self.check(params), "config": config.label()}
        return build(problem, config, machine, names)

    def reference(
        self, params: Mapping[str, Any], seed: int = 0
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
        """Return seeded inputs by tensor name and the expected output in float64."""
        return reference(self.problem(params), seed)

    def flops(self, params: Mapping[str, Any]) -> int:
        """Return 2 m n k."""
        return self.problem(params).flops


W4A16 = W4Gemm()
