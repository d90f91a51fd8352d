"""Which of today's kernels multiplies where the user leaves it open: the best known for the GPU and the rows of A."""

from __future__ import annotations

from types import ModuleType

from heddle.kernels.w4a16 import gemv_config, mma_sync_config, sm90_wgmma_config, sm100_tcgen05_config
from heddle.kernels.w4a16.copied import PAIR
from heddle.kernels.w4a16.shape import AUTO, W4Problem
from heddle.machine.spec import Machine

MODULES: dict[str, ModuleType] = {
    "mma.sync": mma_sync_config,
    "wgmma": sm90_wgmma_config,
    "tcgen05": sm100_tcgen05_config,
    "gemv": gemv_config,
}
"""Where each implementation has its `candidates` and `build`."""
GEMV_ROWS = 1
"""Rows of A up to which AQLM is gemv. It looks all weights up again for each row: from two on mma.sync is faster.
vLLM goes on to 6 (quantization/aqlm.py), as beyond it has no fused kernel but dequantises all weights."""
LARGE = {"sm_90": "wgmma", "sm_100": "tcgen05"}
"""By architecture, the kernel by its own matrix instruction, whose second operand is tokens."""
LARGE_ROWS = 128
"""Rows of A from which it is taken: it has no slices of k, so few tiles leave SMs idle, and mma.sync is faster."""


def chosen(problem: W4Problem, machine: Machine) -> str:
    """Return the implementation, asked for or left open."""
    if problem.implementation != AUTO:
        return problem.implementation
    if problem.looks_up and problem.m <= GEMV_ROWS:
        return "gemv"
    whole = problem.k % PAIR == 0 and (problem.looks_up or problem.group == PAIR)
    large = whole and problem.m >= LARGE_ROWS
    return LARGE.get(machine.architecture, "mma.sync") if large else "mma.sync"
