"""Today's W4A16 by mma.sync, which all GPUs run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heddle.ir.tile import TileProgram
from heddle.kernels.w4a16.candidates import candidates
from heddle.kernels.w4a16.check import check_config
from heddle.kernels.w4a16.items import work_items
from heddle.kernels.w4a16.shape import W4Config, W4Problem
from heddle.kernels.w4a16.sm80_aqlm import aqlm_sm80
from heddle.kernels.w4a16.sm80_awq import awq_sm80
from heddle.machine.spec import Machine

__all__ = ["build", "candidates"]


def build(problem: W4Problem, config: W4Config, machine: Machine, params: Mapping[str, Any]) -> TileProgram:
    """Return the tile program. Raises UserError if the configuration does not fit."""
    check_config(problem, config, machine)
    items = work_items(problem, config, machine)
    kernel = aqlm_sm80 if problem.looks_up else awq_sm80
    return kernel.build("sm_80", problem, config, items, params=params)
