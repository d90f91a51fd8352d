"""The list of tiles that are tried for a W4A16 GEMM; `heddle.study` picks one by simulating them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from heddle.errors import UserError
from heddle.kernels.gemm.shape import ceil_div
from heddle.kernels.w4a16.check import check_config
from heddle.kernels.w4a16.items import item_count
from heddle.kernels.w4a16.shape import TILE_K, W4Config, W4Problem
from heddle.machine.spec import Machine

TILES: tuple[tuple[int, int, int], ...] = (
    (64, 256, 4),
    (128, 128, 4),
    (128, 256, 8),
    (64, 256, 8),
    (64, 128, 4),
    (32, 256, 4),
    (32, 128, 4),
    (16, 256, 4),
    (16, 128, 4),
    (16, 64, 4),
)
"""Rows, columns, warps."""
COPIES_AHEAD = (2, 4)
"""Stages of A on their way, at most."""
MOST = 8
"""Length of the list."""
SLICE_WAVES = (1, 2, 4)
"""CTAs an SM, in which a short product is cut along k."""


def candidates(problem: W4Problem, machine: Machine) -> list[W4Config]:
    """Return up to `MOST` configurations that fit, lowest estimate first. Raises UserError if none do."""
    found: list[W4Config] = []
    for config in (sliced for plain in _plain(problem) for sliced in _slices(problem, plain, machine)):
        if config not in found and _fits(problem, config, machine):
            found.append(config)
    if not found:
        raise UserError(f"no tile of {len(TILES)} fits {problem.m} x {problem.n} x {problem.k} on {machine.name}")
    return sorted(found, key=lambda config: estimate_cycles(problem, config, machine))[:MOST]


def _plain(problem: W4Problem) -> Iterable[W4Config]:
    least = min(rows for rows, _, _ in TILES)
    of_block = problem.block // TILE_K
    for rows, cols, warps in TILES:
        if rows >= 2 * problem.m and rows > least:
            continue  # more than half of the tile would lie outside
        for ahead in COPIES_AHEAD:
            blocks = max(1, min(ahead // of_block, problem.k // problem.block))
            yield W4Config(tile_m=rows, tile_n=cols, warps=warps, stages=1 + blocks * of_block)


def _slices(problem: W4Problem, config: W4Config, machine: Machine) -> Iterable[W4Config]:
    """Yield the configuration, and cuts of k that fill idle SMs."""
    yield config
    items = item_count(problem, config)
    for waves in SLICE_WAVES:
        if (split := waves * machine.sms // items) > 1:
            yield replace(config, split_k=split)


def _fits(problem: W4Problem, config: W4Config, machine: Machine) -> bool:
    try:
        check_config(problem, config, machine)
    except UserError:
        return False
    return True


def estimate_cycles(problem: W4Problem, config: W4Config, machine: Machine) -> float:
    """Return waves x (main loop + latency) + what the epilogue takes: an order in which to try, never a result."""
    waves = ceil_div(item_count(problem, config), machine.sms)
    steps = ceil_div(problem.k, TILE_K * config.split_k)
    rows, cols = min(config.tile_m, problem.m), min(config.tile_n, problem.n)
    matrix = 2 * config.tile_m * config.tile_n * TILE_K / machine.tensor_flops_per_cycle
    loads = (2 * rows + cols / 2) * TILE_K / machine.l2_bytes_per_cycle_per_sm
    latency = machine.l2_far_latency_cycles + machine.store_latency_cycles
    store = rows * cols * (4 if config.split_k > 1 else 2) / machine.l2_bytes_per_cycle_per_sm
    merge = 2 * (latency + store) if config.split_k > 1 else 0.0
    return waves * (steps * max(matrix, loads) + latency + store) + merge
