"""Configurations of the FIBER-native W4A16 kernels of A100."""

from __future__ import annotations

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels._warp import LANES
from heddle.kernels.gemm.sm80_fiber import GROUP, LOAD_REGISTERS, FiberGemm80, sum_registers
from heddle.kernels.gemm.sm80_fiber_config import NARROWEST as COLUMNS, ROWS, USABLE_REGISTERS, FiberGemm80Config
from heddle.kernels.w4a16.check import codebook_bytes
from heddle.kernels.w4a16.shape import ELEMENT_BYTES, W4Problem
from heddle.kernels.w4a16.sm80_fiber import block_k, w4_sm80_fiber, weight_registers
from heddle.machine.spec import Machine

TILES = ((192, 128), (128, 128), (64, 128), (64, 64))
MAX_STAGES = 5
BEGIN_REGISTERS = GROUP
"""Of the weft that a FIBER-thread starts with, and of those that end at once."""


def candidates(problem: W4Problem, machine: Machine) -> list[FiberGemm80Config]:
    """Return tiles worth trying. Raises UserError for what the kernel cannot run."""
    _check_problem(problem)
    found = []
    for tile_m, tile_n in TILES:
        if (tile_m < 2 * problem.m or tile_m == ROWS) and (tile_n < 2 * problem.n or tile_n == COLUMNS):
            stages = min(MAX_STAGES, _most_stages(problem, tile_m, machine))
            if stages >= 2 and _registers(problem, tile_m, tile_n) <= USABLE_REGISTERS:
                found.append(FiberGemm80Config(tile_m=tile_m, tile_n=tile_n, stages=stages))
    return found


def build(problem: W4Problem, config: FiberGemm80Config, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    _check_problem(problem)
    _check_config(problem, config, machine)
    same = FiberGemm80(
        m=problem.m,
        n=problem.n,
        k=problem.k,
        dtype=problem.dtype,
        tile_m=config.tile_m,
        tile_n=config.tile_n,
        stages=config.stages,
        fiber_threads=machine.sms,
    )
    return w4_sm80_fiber.build("sm_80", problem, same, params=params)


def _check_problem(problem: W4Problem) -> None:
    if problem.looks_up and problem.k < 2 * block_k(problem):
        raise UserError(f"the FIBER-native kernel takes two blocks of {block_k(problem)} or more; k = {problem.k}")
    if not problem.looks_up and problem.k < 2 * problem.group:
        raise UserError(f"the FIBER-native kernel takes two groups of k or more; k = {problem.k}")


def _most_stages(problem: W4Problem, tile_m: int, machine: Machine) -> int:
    """Stages of A that shared memory holds beside codebooks, and the problem has blocks."""
    room = machine.shared_memory_bytes_per_cta - codebook_bytes(problem)
    return min(room // (tile_m * block_k(problem) * ELEMENT_BYTES), problem.k // block_k(problem))


def _registers(problem: W4Problem, tile_m: int, tile_n: int) -> int:
    """Registers that the fuller window of a subpartition needs."""
    fragments = (tile_m + tile_n) * block_k(problem) // 2 // (LANES * GROUP)
    loaders = fragments + LOAD_REGISTERS + weight_registers(problem, tile_n) + 2 * BEGIN_REGISTERS
    return max(loaders, sum_registers(tile_m, tile_n))


def _check_config(problem: W4Problem, config: FiberGemm80Config, machine: Machine) -> None:
    if config.tile_m % ROWS or config.tile_n % COLUMNS or min(config.tile_m, config.tile_n) < 1:
        raise UserError(f"tile_m and tile_n are multiples of {ROWS}, {COLUMNS}; got {config.tile_m}, {config.tile_n}")
    needed = _registers(problem, config.tile_m, config.tile_n)
    if needed > USABLE_REGISTERS:
        raise UserError(
            f"a tile of {config.tile_m} x {config.tile_n} needs {needed} registers in one window of each subpartition, "
            f"which has {USABLE_REGISTERS}",
            hint="use a smaller tile",
        )
    most = _most_stages(problem, config.tile_m, machine)
    if not 2 <= config.stages <= most:
        raise UserError(f"stages must be 2 to {most} for {config.label()}; got {config.stages}")


TILE = (
    TileParameter("tile_m", int, "rows of C that a FIBER-thread makes", "multiples of 64"),
    TileParameter("tile_n", int, "columns of C that a FIBER-thread makes", "multiples of 64"),
    TileParameter("stages", int, "slices of A in flight", "2 or more, as shared memory holds"),
)
"""What the fields of a configuration may be, for people."""

SM80_FIBER = NativeKernel(candidates=candidates, build=build, tile=TILE, across=True)
"""The FIBER-native W4A16 kernels of A100."""
