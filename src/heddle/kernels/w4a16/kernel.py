"""The registry entry of W4A16 GEMM: parameters, and the choice of the kernel for a machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.ir.tile import TileProgram
from heddle.kernels._kernel import Kernel, Parameter
from heddle.kernels.w4a16 import gemv_config, sm90_wgmma_config
from heddle.kernels.w4a16.candidates import candidates
from heddle.kernels.w4a16.check import check_config, check_problem
from heddle.kernels.w4a16.gemv import aqlm_gemv
from heddle.kernels.w4a16.items import work_items
from heddle.kernels.w4a16.native import NATIVE
from heddle.kernels.w4a16.reference import reference
from heddle.kernels.w4a16.shape import AUTO, GROUPS, IMPLEMENTATIONS, SCHEMES, TILE, W4Config, W4Problem
from heddle.kernels.w4a16.sm80_aqlm import aqlm_sm80
from heddle.kernels.w4a16.sm80_awq import awq_sm80
from heddle.kernels.w4a16.sm90_wgmma import w4_sm90_wgmma
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
            "of today's kernel: mma.sync on every GPU, wgmma (H100), gemv (AQLM of up to 8 rows, every GPU); auto: "
            "gemv for one row, else mma.sync",
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
        problem = self.problem(params)
        if problem.chosen == "wgmma":
            return sm90_wgmma_config.candidates(problem, machine)
        if problem.chosen == "gemv":
            return gemv_config.candidates(problem)
        return candidates(problem, machine)

    def simt_build(self, machine: Machine, params: Mapping[str, Any], config: W4Config | None = None) -> TileProgram:
        """Return the tile program; without a configuration the first candidate is taken."""
        problem = self.problem(params)
        config = config or self.simt_candidates(machine, params)[0]
        names = {**self.check(params), "config": config.label()}
        if problem.chosen == "gemv":
            rows = gemv_config.work_items(problem, config)
            return aqlm_gemv.build("sm_80", problem, config, rows, params=names)
        if problem.chosen == "wgmma":
            sm90_wgmma_config.check_config(problem, config, machine)
            tiles = sm90_wgmma_config.tiles_of(problem, config)
            return w4_sm90_wgmma.build("sm_90", problem, tiles, machine.sms // tiles.cluster, params=names)
        check_config(problem, config, machine)
        items = work_items(problem, config, machine)
        kernel = aqlm_sm80 if problem.looks_up else awq_sm80
        return kernel.build("sm_80", problem, config, items, params=names)

    def reference(
        self, params: Mapping[str, Any], seed: int = 0
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
        """Return seeded inputs by tensor name and the expected output in float64."""
        return reference(self.problem(params), seed)

    def flops(self, params: Mapping[str, Any]) -> int:
        """Return 2 m n k."""
        return self.problem(params).flops


W4A16 = W4Gemm()
