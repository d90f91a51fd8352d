"""Configurations of the GEMM of A100 for machines without full and empty bits."""

from __future__ import annotations

from collections.abc import Iterator

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels._rounding import ceil_div
from heddle.kernels._warp import LANES
from heddle.kernels.gemm.check import check_problem
from heddle.kernels.gemm.raster import item_count
from heddle.kernels.gemm.rope import check_tile, fits_head
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.gemm.sm80 import MMA_FRAGMENT_REGISTERS
from heddle.kernels.gemm.sm80_fiber_phased import (
    GROUPS,
    WEFTS,
    WORK_REGISTERS,
    FiberPhased80Config,
    gemm_sm80_fiber_phased,
)
from heddle.machine.spec import Machine

TILES = ((128, 256, 64), (256, 128, 64), (128, 128, 64), (128, 64, 64), (64, 64, 64), (32, 64, 64))
ROWS, COLUMNS = 32, 64
"""Multiples of a tile: rows of 16 for each group, columns for the four wefts of a group side by side."""
DEPTHS = (32, 64)
"""Columns of a slice: whole rows of copies."""
MOST_STAGES = 4
"""Of a ring: three named barriers each."""
ADDRESSES = 16
"""Registers of addresses and counters of a weft that multiplies."""
TILE = (
    TileParameter("tile_m", int, "rows of C that a FIBER-thread makes", f"multiples of {ROWS}"),
    TileParameter("tile_n", int, "columns of C that a FIBER-thread makes", f"multiples of {COLUMNS}"),
    TileParameter("tile_k", int, "products summed in one stage", "32, 64"),
    TileParameter("stages", int, "slices of A and B in shared memory", f"2 to {MOST_STAGES}, as it holds"),
)
"""What the fields of `FiberPhased80Config` may be, for people."""


def candidates(problem: GemmProblem, machine: Machine) -> list[FiberPhased80Config]:
    """Return configurations that fit, largest tiles first. Raises UserError for what cannot be run."""
    check_problem(problem, machine)
    return list(_candidates(problem, machine))


def build(problem: GemmProblem, config: FiberPhased80Config, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    check_problem(problem, machine)
    _check_config(problem, config, machine)
    threads = min(machine.sms, item_count(problem, config.whole))
    items = config.items(problem, threads)
    return gemm_sm80_fiber_phased.build("sm_80", problem, config, items, threads, params=params)


def _candidates(problem: GemmProblem, machine: Machine) -> Iterator[FiberPhased80Config]:
    """Yield tiles with as many stages as fit, and with the most that divide k: a turn beyond k multiplies zeros."""
    for tile_m, tile_n, tile_k in TILES:
        narrow = (tile_m < 2 * problem.m or tile_m == ROWS) and (tile_n < 2 * problem.n or tile_n == COLUMNS)
        for stages in _stages(problem, tile_m, tile_n, tile_k, machine):
            config = FiberPhased80Config(tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, stages=stages)
            if narrow and fits_head(problem, tile_n) and _registers(problem, config) <= WORK_REGISTERS:
                yield config


def _stages(problem: GemmProblem, tile_m: int, tile_n: int, tile_k: int, machine: Machine) -> list[int]:
    most = min(MOST_STAGES, _most_stages(problem, tile_m, tile_n, tile_k, machine))
    even = [stages for stages in range(most, 1, -1) if ceil_div(problem.k, tile_k) % stages == 0]
    return list(dict.fromkeys([*even[:1], most])) if most >= 2 else []


def _most_stages(problem: GemmProblem, tile_m: int, tile_n: int, tile_k: int, machine: Machine) -> int:
    return machine.shared_memory_bytes_per_cta // ((tile_m + tile_n) * tile_k * problem.element_bytes)


def _registers(problem: GemmProblem, config: FiberPhased80Config) -> int:
    """Registers of a weft that multiplies: its sums with two sets of fragments, or with what the epilogue takes."""
    half = config.half
    rows, cols = half.tile_m // half.warps[0], half.tile_n // half.warps[1]
    sums = rows * cols // LANES
    fragments = 2 * (rows // 16 * MMA_FRAGMENT_REGISTERS[0] + cols // 8 * MMA_FRAGMENT_REGISTERS[1])
    return sums + max(fragments, 0 if problem.epilogue == "none" else sums // 2) + ADDRESSES


def _check_config(problem: GemmProblem, config: FiberPhased80Config, machine: Machine) -> None:
    if config.tile_m % ROWS or config.tile_n % COLUMNS or min(config.tile_m, config.tile_n) < 1:
        raise UserError(f"tile_m and tile_n are multiples of {ROWS}, {COLUMNS}; got {config.tile_m}, {config.tile_n}")
    if config.tile_k not in DEPTHS:
        raise UserError(f"tile_k is {DEPTHS[0]} or {DEPTHS[1]}, got {config.tile_k}")
    check_tile(problem, config.tile_n, wide=False)
    needed = _registers(problem, config)
    if needed > WORK_REGISTERS:
        raise UserError(
            f"a tile of {config.tile_m} x {config.tile_n} needs {needed} registers of each of {GROUPS * WEFTS} wefts, "
            f"which have {WORK_REGISTERS}",
            hint="use a smaller tile",
        )
    most = min(MOST_STAGES, _most_stages(problem, config.tile_m, config.tile_n, config.tile_k, machine))
    if not 2 <= config.stages <= most:
        raise UserError(
            f"stages must be 2 to {most} for {config.label()}, as shared memory and named barriers allow; got "
            f"{config.stages}"
        )


PHASED = NativeKernel(candidates=candidates, build=build, tile=TILE, needs=("dynamic_parallelism",))
"""For machines without full and empty bits, whether their wefts share registers or not."""
