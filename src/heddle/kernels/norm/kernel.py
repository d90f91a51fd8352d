"""The registry entry of the RMS normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._kernel import Kernel, Parameter
from heddle.kernels._limits import check_item_count
from heddle.kernels._warp import LANES, REGISTER_BYTES
from heddle.kernels.norm.fiber import FIBER
from heddle.kernels.norm.reference import reference
from heddle.kernels.norm.rmsnorm import BLOCK, WORKING_REGISTERS, needed_registers, rmsnorm, row_registers
from heddle.kernels.norm.shape import TILE, NormConfig, NormProblem
from heddle.kernels.norm.staged import STAGED
from heddle.machine.spec import Machine

WARPS = (4, 8, 2, 16)
"""Rows of a CTA that are tried."""
LOAD_BYTES = 16
"""A lane loads and stores aligned pieces of this size."""


class RmsNorm(Kernel[NormConfig]):
    """Y = X / sqrt(mean(X^2) + epsilon) * W, row by row; with a residual R, X + R in place of X, written to S too."""

    name = "rmsnorm"
    summary = "Y = X / sqrt(mean(X^2) + 1e-5) * W for each row; residual=1: X + R in place of X, written too"
    parameters = (
        Parameter("rows", int, 4096, "vectors: tokens of a layer"),
        Parameter("hidden", int, 4096, "elements of a vector"),
        Parameter("dtype", str, "fp16", "type of all tensors", choices=("fp16", "bf16")),
        Parameter("residual", int, 0, "1: add another tensor first, and write the sum", choices=(0, 1)),
    )
    tile = TILE
    architectures = ("sm_80", "sm_90", "sm_100")
    native = dict.fromkeys(architectures, replace(FIBER, instead=(*FIBER.instead, STAGED)))
    shares_dram = True

    def problem(self, params: Mapping[str, Any]) -> NormProblem:
        """Return the checked problem."""
        checked = self.check(params)
        problem = NormProblem(**{**checked, "residual": bool(checked["residual"])})
        _check_alignment(problem)
        return problem

    def simt_candidates(self, machine: Machine, params: Mapping[str, Any]) -> list[NormConfig]:
        """Return how many rows a CTA may have, as registers hold them, and with early loads."""
        problem = self.problem(params)
        _check_registers(problem, machine)
        found = [NormConfig(warps=warps, early=early) for early in (0, 1) for warps in WARPS]
        return [config for config in found if _is_worth_trying(problem, config, machine)]

    def simt_build(self, machine: Machine, params: Mapping[str, Any], config: NormConfig | None = None) -> TileProgram:
        """Return the tile program; without a configuration the first candidate is taken."""
        problem = self.problem(params)
        _check_registers(problem, machine)
        config = config or self.simt_candidates(machine, params)[0]
        if not 1 <= config.warps <= max(WARPS):
            raise UserError(f"a CTA of rmsnorm has 1 to {max(WARPS)} warps, got {config.warps}")
        _check_early(problem, config, machine)
        firsts = range(0, problem.rows, config.warps)
        check_item_count(f"rmsnorm cuts {problem.rows} rows", len(firsts))
        params = {**self.check(params), "config": config.label()}
        return rmsnorm.build(machine.architecture, problem, config, {"row": list(firsts)}, params=params)

    def reference(
        self, params: Mapping[str, Any], seed: int = 0
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
        """Return seeded inputs by tensor name and the expected outputs in float64."""
        return reference(self.problem(params), seed)

    def flops(self, params: Mapping[str, Any]) -> int:
        """Return four operations an element, five with a residual."""
        return self.problem(params).flops


def _check_alignment(problem: NormProblem) -> None:
    if problem.hidden * problem.element_bytes % LOAD_BYTES:
        raise UserError(
            f"rows of {problem.hidden} elements have {problem.hidden * problem.element_bytes} bytes; a lane loads and "
            f"stores {LOAD_BYTES} aligned bytes",
            hint=f"pad hidden to a multiple of {LOAD_BYTES // problem.element_bytes}",
        )


def _check_registers(problem: NormProblem, machine: Machine) -> None:
    needed, limit = row_registers(problem) + WORKING_REGISTERS, machine.max_registers_per_thread
    if needed > limit:
        most = (limit - WORKING_REGISTERS) * LANES * REGISTER_BYTES // problem.element_bytes // BLOCK * BLOCK
        raise UserError(
            f"a row of {problem.hidden} elements takes {needed} registers of each thread of a warp; there are {limit}",
            hint=f"rows of up to {most:,} elements fit",
        )


def _is_worth_trying(problem: NormProblem, config: NormConfig, machine: Machine) -> bool:
    """Whether registers hold it, and, if nothing but weights is loaded early, all rows at once.

    Weights come from L2, which other rows in flight hide; candidates are compared on one cluster, which sees none.
    """
    needed, registers = needed_registers(problem, config), machine.vector_registers * machine.subpartitions
    rows = machine.sms * (registers // needed)
    fits = needed <= machine.max_registers_per_thread and config.warps * needed <= registers
    return fits and (not config.early or problem.residual or problem.rows <= rows)


def _check_early(problem: NormProblem, config: NormConfig, machine: Machine) -> None:
    if config.early not in (0, 1):
        raise UserError(f"early must be 0 or 1, got {config.early}")
    needed, limit = needed_registers(problem, config), machine.max_registers_per_thread
    if needed > limit:
        raise UserError(
            f"early = 1 with rows of {problem.hidden} elements takes {needed} registers of each thread; there are "
            f"{limit}",
            hint="early=0 has two blocks of residual and weights on their way",
        )


RMSNORM = RmsNorm()
