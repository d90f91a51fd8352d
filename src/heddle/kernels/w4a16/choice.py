"""Which of today's kernels multiplies where the user leaves it open: tiles of all that can are compared by simulation.

There is no rule for rows of A: it hangs on n and k, too, whether tiles fill the SMs without slices of k, which only
mma.sync has. So the likely tiles of each kernel go into one list, and `heddle.study` takes the fastest, as it does
among the tiles of one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels.w4a16 import gemv_config, mma_sync_config, sm90_wgmma_config, sm100_tcgen05_config
from heddle.kernels.w4a16.candidates import MOST
from heddle.kernels.w4a16.candidates import estimate_cycles as mma_sync_estimate
from heddle.kernels.w4a16.shape import AUTO, W4Config, W4Problem
from heddle.kernels.w4a16.turned_estimate import estimate_cycles, mma_sync_least_cycles
from heddle.machine.spec import Machine

MMA_SYNC = "mma.sync"
MODULES: dict[str, ModuleType] = {
    MMA_SYNC: mma_sync_config,
    "wgmma": sm90_wgmma_config,
    "tcgen05": sm100_tcgen05_config,
    "gemv": gemv_config,
}
"""Where each implementation has its `candidates` and `build`."""
GEMV_ROWS = 1
"""Rows of A up to which AQLM is gemv. It looks all weights up again for each row: from two on mma.sync is faster.
vLLM goes on to 6 (quantization/aqlm.py), as beyond it has no fused kernel but dequantises all weights."""
OWN = {"sm_90": "wgmma", "sm_100": "tcgen05"}
"""By architecture, the kernel by its own matrix instruction, whose second operand is tokens."""
OWN_COMPARED = 2
"""Of its tiles that are compared with those of mma.sync, lowest estimates first; `MOST` in all are simulated."""
FAR = 1.4
"""Times the estimate that the products alone by mma.sync must take for it not to be tried. Neither number has waits:
simulated cycles are up to 2.5 times the estimate (64 tokens on B200) and 1.8 times the products (mma.sync there)."""


def candidates(problem: W4Problem, machine: Machine) -> list[W4Config]:
    """Return tiles worth trying, of the implementation asked for or of all that are likely.

    The first one has the lowest estimate of its kernel, whose estimate is the lower one. Raises UserError if none fit.
    """
    if problem.implementation != AUTO:
        return list(MODULES[problem.implementation].candidates(problem, machine))
    if _by_rows(problem) == "gemv":
        return _named("gemv", gemv_config.candidates(problem, machine))
    own = _own_candidates(problem, machine)
    if not own:
        return list(mma_sync_config.candidates(problem, machine))
    name = OWN[machine.architecture]
    own = sorted(own, key=lambda config: estimate_cycles(problem, config, machine))
    if mma_sync_least_cycles(problem, machine) > FAR * estimate_cycles(problem, own[0], machine):
        return _named(name, own)
    try:
        others = mma_sync_config.candidates(problem, machine)
    except UserError:  # its rules are its own
        return _named(name, own)
    likely, other = _named(name, own[:OWN_COMPARED]), _named(MMA_SYNC, others[: MOST - len(own[:OWN_COMPARED])])
    first = estimate_cycles(problem, own[0], machine) <= mma_sync_estimate(problem, others[0], machine)
    return [*likely, *other] if first else [*other, *likely]


def build(problem: W4Problem, config: W4Config, machine: Machine, params: Mapping[str, Any]) -> TileProgram:
    """Return the tile program of a configuration. Raises UserError if it does not fit."""
    module = MODULES[implementation(problem, config)]
    program: TileProgram = module.build(problem, replace(config, implementation=""), machine, params)
    return program


def implementation(problem: W4Problem, config: W4Config) -> str:
    """Return what is asked for, or what the configuration is of: by rows of A where it does not say."""
    return problem.implementation if problem.implementation != AUTO else config.implementation or _by_rows(problem)


def _by_rows(problem: W4Problem) -> str:
    return "gemv" if problem.looks_up and problem.m <= GEMV_ROWS else MMA_SYNC


def _own_candidates(problem: W4Problem, machine: Machine) -> list[W4Config]:
    """Return those of the kernel by the GPU's own matrix instruction, none where it has none or cannot run this."""
    if machine.architecture not in OWN:
        return []
    try:
        return list(MODULES[OWN[machine.architecture]].candidates(problem, machine))
    except UserError:
        return []


def _named(name: str, found: list[W4Config]) -> list[W4Config]:
    return [replace(config, implementation=name) for config in found]
