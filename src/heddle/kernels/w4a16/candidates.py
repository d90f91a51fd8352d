"""The list of tiles that are tried for a W4A16 GEMM; `heddle.study` picks one by simulating them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from heddle.errors import UserError
from heddle.kernels._rounding import ceil_div
from heddle.kernels._warp import LANES
from heddle.kernels.w4a16.check import check_config
from heddle.kernels.w4a16.items import WORD, code_bytes, item_count
from heddle.kernels.w4a16.shape import BOOKS, TILE_K, W4Config, W4Problem
from heddle.machine.spec import Machine

TILES: tuple[tuple[int, int, int], ...] = (
    (64, 256, 4),
    (128, 128, 4),
    (128, 256, 8),
    (64, 256, 8),
    (96, 128, 4),
    (96, 256, 8),
    (64, 128, 4),
    (32, 256, 4),
    (32, 128, 4),
    (16, 256, 4),
    (16, 128, 4),
    (16, 64, 4),
)
"""Rows, columns, warps."""
COPIES_AHEAD = (4, 2)
"""Stages of A on their way, at most: a tile takes the first that fits."""
MOST = 6
"""Length of the list: all are simulated."""
AGAIN = 2
"""Of the best tiles, that are tried with fewer stages, too."""
WORD_INSTRUCTIONS = {"awq": 17, "aqlm_1x16": 3, "aqlm_2x8": 10}
"""That make eight weights: unpacking (`passes/select/dequantize.py`), or looking up one entry, or two and their sum."""
SECTOR_BYTES = 32
"""That L2 gives for an entry."""
ENTRY_BYTES = 16
"""Of a codebook."""
SLICE_WAVES = (1, 2, 4)
"""CTAs an SM, in which a short product is cut along k."""


def candidates(problem: W4Problem, machine: Machine) -> list[W4Config]:
    """Return up to `MOST` configurations that fit, lowest estimate first, and the best with fewer stages.

    Raises UserError if none fit.
    """
    found: list[W4Config] = []
    shallower: dict[W4Config, W4Config] = {}
    refused: UserError | None = None
    for depths in _plain(problem):
        fitting: list[W4Config] = []
        for plain in depths:
            try:
                check_config(problem, plain, machine)
                fitting.append(plain)
            except UserError as error:  # another may fit
                refused = error
        if fitting:
            found += [config for config in _slices(problem, fitting[0], machine) if _fits(problem, config, machine)]
            shallower[fitting[0]] = fitting[-1]
    if not found and refused:
        sizes = f"{problem.m} x {problem.n} x {problem.k}"
        raise UserError(
            f"no tile of {len(TILES)} fits {sizes} on {machine.name}; the last: {refused.message}", hint=refused.hint
        )
    ordered = sorted(found, key=lambda config: estimate_cycles(problem, config, machine))
    again = [shallower[config] for config in ordered[:AGAIN] if shallower.get(config, config) != config]
    return [*ordered[: MOST - len(again)], *again]


def _fits(problem: W4Problem, config: W4Config, machine: Machine) -> bool:
    try:
        check_config(problem, config, machine)
    except UserError:
        return False
    return True


def _plain(problem: W4Problem) -> Iterable[list[W4Config]]:
    """Yield each tile with its numbers of stages, most first."""
    least = min(rows for rows, _, _ in TILES)
    of_block = problem.block // TILE_K
    for rows, cols, warps in TILES:
        if rows >= 2 * problem.m and rows > least:
            continue  # more than half of the tile would lie outside
        blocks = [max(1, min(ahead // of_block, problem.k // problem.block)) for ahead in COPIES_AHEAD]
        depths = dict.fromkeys(1 + count * of_block for count in blocks)
        yield [W4Config(tile_m=rows, tile_n=cols, warps=warps, stages=stages) for stages in depths]


def _slices(problem: W4Problem, config: W4Config, machine: Machine) -> Iterable[W4Config]:
    """Yield the configuration, and cuts of k that fill idle SMs."""
    yield config
    items = item_count(problem, config)
    for waves in SLICE_WAVES:
        if (split := waves * machine.sms // items) > 1:
            yield replace(config, split_k=split)


def estimate_cycles(problem: W4Problem, config: W4Config, machine: Machine) -> float:
    """Return waves x (main loop + latency) + what the epilogue takes: an order in which to try, never a result."""
    waves = ceil_div(item_count(problem, config), machine.sms)
    steps = ceil_div(problem.k, TILE_K * config.split_k)
    rows, cols = min(config.tile_m, problem.m), min(config.tile_n, problem.n)
    latency = machine.l2_far_latency_cycles + machine.store_latency_cycles
    store = rows * cols * (4 if config.split_k > 1 else 2) / machine.l2_bytes_per_cycle_per_sm
    merge = 2 * (latency + store) if config.split_k > 1 else 0.0
    return waves * (steps * _step_cycles(problem, config, machine) + latency + store) + merge


def _step_cycles(problem: W4Problem, config: W4Config, machine: Machine) -> float:
    """Return the largest of matrix, L2 and shared memory time of a stage, plus the issue slots that make its weights.

    A warp multiplies with the weights that it makes itself: it issues the one after the other.
    """
    rows, cols = min(config.tile_m, problem.m), min(config.tile_n, problem.n)
    words = config.tile_n * TILE_K // WORD
    matrix = 2 * config.tile_m * config.tile_n * TILE_K / machine.tensor_flops_per_cycle
    gathered = words * SECTOR_BYTES if problem.scheme == "aqlm_1x16" else 0
    codes = cols * code_bytes(problem) * TILE_K // WORD
    loads = (2 * rows * TILE_K + codes + gathered) / machine.l2_bytes_per_cycle_per_sm
    entries = words * ENTRY_BYTES * BOOKS[problem.scheme] if problem.scheme == "aqlm_2x8" else 0
    fragments = 2 * config.warps * config.tile_m * TILE_K  # warps side by side: each loads all rows of A
    shared = (fragments + entries) / machine.shared_bytes_per_cycle
    made = words * WORD_INSTRUCTIONS[problem.scheme] / (LANES * machine.subpartitions)
    return max(matrix, loads, shared) + made
