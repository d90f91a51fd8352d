"""Configurations of the FIBER-native W4A16 kernels of A100."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels._warp import LANES
from heddle.kernels.gemm.sm80_fiber import GROUP, LOAD_REGISTERS, STEP_K, FiberGemm80, Sharing, sum_registers
from heddle.kernels.gemm.sm80_fiber_config import NARROWEST as COLUMNS
from heddle.kernels.gemm.sm80_fiber_config import ROWS as GEMM_ROWS
from heddle.kernels.gemm.sm80_fiber_config import USABLE_REGISTERS, FiberGemm80Config
from heddle.kernels.w4a16.check import codebook_bytes
from heddle.kernels.w4a16.shape import ELEMENT_BYTES, W4Problem
from heddle.kernels.w4a16.sm80_fiber import block_k, w4_sm80_fiber, weight_registers
from heddle.kernels.w4a16.sm80_fiber_phased import PHASED
from heddle.machine.spec import Machine

TILES: dict[Sharing, tuple[tuple[int, int, int], ...]] = {
    "sm": ((192, 128, 4), (128, 128, 4), (64, 128, 4), (64, 64, 4)),
    "subpartition": ((192, 128, 2), (128, 128, 4), (64, 256, 4), (64, 128, 4), (64, 64, 4)),
}
"""Rows, columns and steps of a block by who shares registers."""
STEPS = (2, 4)
"""Of 16 in a block, where each subpartition has all of them: an entry of AQLM fills two."""
ROWS: dict[Sharing, int] = {"sm": GEMM_ROWS, "subpartition": 32}
"""Multiple of rows of a tile."""
MAX_STAGES = 5
BEGIN_REGISTERS = GROUP
"""Of the weft that a FIBER-thread starts with, and of those that end at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberW480Config(FiberGemm80Config):
    """The same with `steps` of 16 in a block, where registers are shared inside a subpartition only."""

    steps: int = GROUP

    def label(self) -> str:
        """Return a short name, as in `fiber 192x128 s5 own k32`."""
        name = FiberGemm80Config.label(self)
        return name if self.sharing == "sm" else f"{name} k{self.steps * STEP_K}"


def candidates(problem: W4Problem, machine: Machine, sharing: Sharing = "sm") -> list[FiberW480Config]:
    """Return tiles worth trying. Raises UserError for what the kernel cannot run."""
    _check_problem(problem)
    found = []
    for tile_m, tile_n, steps in TILES[sharing]:
        config = FiberW480Config(tile_m=tile_m, tile_n=tile_n, stages=MAX_STAGES, sharing=sharing, steps=steps)
        if (tile_m < 2 * problem.m or tile_m == GEMM_ROWS) and (tile_n < 2 * problem.n or tile_n == COLUMNS):
            stages = min(MAX_STAGES, _most_stages(problem, config, machine))
            if stages >= 2 and _registers(problem, config) <= USABLE_REGISTERS:
                found.append(replace(config, stages=stages))
    return found


def build(problem: W4Problem, config: FiberW480Config, machine: Machine, params: ProgramParams) -> TileProgram:
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
        sharing=config.sharing,
    )
    return w4_sm80_fiber.build("sm_80", problem, same, config.steps, params=params)


def _check_problem(problem: W4Problem) -> None:
    if problem.looks_up and problem.k < 2 * block_k(problem):
        raise UserError(f"the FIBER-native kernel takes two blocks of {block_k(problem)} or more; k = {problem.k}")
    if not problem.looks_up and problem.k < 2 * problem.group:
        raise UserError(f"the FIBER-native kernel takes two groups of k or more; k = {problem.k}")


def _most_stages(problem: W4Problem, config: FiberW480Config, machine: Machine) -> int:
    """Stages of A that shared memory holds beside codebooks, and the problem has blocks."""
    room, block = (
        machine.shared_memory_bytes_per_cta - codebook_bytes(problem),
        block_k(problem, config.sharing, config.steps),
    )
    return min(room // (config.tile_m * block * ELEMENT_BYTES), problem.k // block)


def _registers(problem: W4Problem, config: FiberW480Config) -> int:
    """Registers that the fuller window of a subpartition needs."""
    tile_m, tile_n, block = config.tile_m, config.tile_n, block_k(problem, config.sharing, config.steps)
    own = config.sharing == "subpartition"
    fragments = (tile_m * (GROUP if own else 1) + tile_n) * block // 2 // (LANES * GROUP)
    part = (tile_n // GROUP, block) if own else (tile_n, block // GROUP)
    loaders = fragments + LOAD_REGISTERS + weight_registers(problem, *part) + 2 * BEGIN_REGISTERS
    return max(loaders, sum_registers(tile_m, tile_n))


def _check_config(problem: W4Problem, config: FiberW480Config, machine: Machine) -> None:
    rows = ROWS[config.sharing]
    if config.tile_m % rows or config.tile_n % COLUMNS or min(config.tile_m, config.tile_n) < 1:
        raise UserError(f"tile_m and tile_n are multiples of {rows}, {COLUMNS}; got {config.tile_m}, {config.tile_n}")
    if config.steps not in STEPS:
        raise UserError(f"steps of a block are {STEPS[0]} or {STEPS[1]}, got {config.steps}")
    needed = _registers(problem, config)
    if needed > USABLE_REGISTERS:
        raise UserError(
            f"a tile of {config.tile_m} x {config.tile_n} needs {needed} registers in one window of each subpartition, "
            f"which has {USABLE_REGISTERS}",
            hint="use a smaller tile",
        )
    most = _most_stages(problem, config, machine)
    if not 2 <= config.stages <= most:
        raise UserError(f"stages must be 2 to {most} for {config.label()}; got {config.stages}")


TILE = (
    TileParameter(
        "tile_m",
        int,
        "rows of C that a FIBER-thread makes",
        "multiples of 64, of 32 without registers of other subpartitions",
    ),
    TileParameter("tile_n", int, "columns of C that a FIBER-thread makes", "multiples of 64"),
    TileParameter("steps", int, "of 16 in a block, without registers of other subpartitions", "2, 4"),
    TileParameter("stages", int, "slices of A in flight", "2 or more, as shared memory holds"),
)
"""What the fields of a configuration may be, for people."""

OWN = NativeKernel(candidates=partial(candidates, sharing="subpartition"), build=build, tile=TILE)
"""For machines whose wefts share registers inside a subpartition only: a copy of A in each."""
SM80_FIBER = NativeKernel(candidates=candidates, build=build, tile=TILE, across=True, instead=(OWN, PHASED))
"""The FIBER-native W4A16 kernels of A100."""
