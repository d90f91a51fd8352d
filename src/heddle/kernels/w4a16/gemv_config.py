"""Configurations of AQLM for few tokens: how many columns of W, each of a warp, a CTA has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._limits import check_item_count
from heddle.kernels.w4a16.gemv import aqlm_gemv
from heddle.kernels.w4a16.shape import W4Config, W4Problem
from heddle.machine.spec import Machine

MOST_ROWS = 8
"""Of A that take this kernel; each is multiplied by itself."""
WARPS = (16, 8, 4)
"""Of a CTA. The original takes what whole waves need, 16 at most; here copies are dealt evenly to the warps."""


def candidates(problem: W4Problem, machine: Machine) -> list[W4Config]:
    """Return the numbers of columns worth trying. Raises UserError for what the kernel cannot run."""
    _check_problem(problem)
    return _all()


def build(problem: W4Problem, config: W4Config, machine: Machine, params: Mapping[str, Any]) -> TileProgram:
    """Return the tile program, the same on every GPU. Raises UserError if the configuration does not fit."""
    return aqlm_gemv.build("sm_80", problem, config, work_items(problem, config), params=params)


def check_config(problem: W4Problem, config: W4Config) -> None:
    """Raise UserError if a configuration breaks a rule of the kernel."""
    _check_problem(problem)
    if config not in _all():
        raise UserError(
            f"by gemv a CTA has a row of A and {', '.join(map(str, WARPS))} columns, each of a warp, one stage and "
            f"split_k 1; got {config.label()}",
            hint="name tile_m, tile_n, stages and warps so, or none of them; implementation=mma.sync takes others",
        )
    check_item_count(f"{config.label()} cuts {problem.m} x {problem.n}", len(_firsts(problem, config)) * problem.m)


def work_items(problem: W4Problem, config: W4Config) -> dict[str, list[int]]:
    """Return the work items, one list an attribute: row of A, and first column of W; rows one after the other."""
    check_config(problem, config)
    firsts = _firsts(problem, config)
    return {
        "row": [row for row in range(problem.m) for _ in firsts],
        "col": [col for _ in range(problem.m) for col in firsts],
    }


def _all() -> list[W4Config]:
    return [W4Config(tile_m=1, tile_n=warps, stages=1, warps=warps) for warps in WARPS]


def _firsts(problem: W4Problem, config: W4Config) -> range:
    return range(0, problem.n, config.warps)


def _check_problem(problem: W4Problem) -> None:
    if not problem.looks_up or problem.m > MOST_ROWS:
        raise UserError(
            f"gemv is AQLM of up to {MOST_ROWS} rows of A; scheme = {problem.scheme}, m = {problem.m}",
            hint="leave implementation out",
        )
