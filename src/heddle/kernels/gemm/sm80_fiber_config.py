"""Configurations of the FIBER-native GEMM of A100: which are worth trying, and what they must keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels.gemm.check import check_problem
from heddle.kernels.gemm.rope import check_tile, fits_heads
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.gemm.sm80_fiber import (
    TILE_K,
    FiberGemm80,
    Sharing,
    fragment_registers,
    gemm_sm80_fiber,
    sum_registers,
)
from heddle.kernels.gemm.sm80_fiber_phased_config import PHASED
from heddle.machine.spec import Machine

DTYPES = ("fp16", "bf16")
TILES: dict[Sharing, tuple[tuple[int, int], ...]] = {
    "sm": ((192, 128), (128, 192), (128, 128), (128, 64), (64, 128), (64, 64)),
    "subpartition": ((256, 96), (192, 128), (192, 96), (128, 128), (256, 64), (128, 64), (64, 64)),
}
"""Rows and columns by who shares registers; a copy of B in each subpartition makes narrow tiles of it."""
ROWS = 64
"""Multiple of rows of a tile: 16 for each of four wefts."""
COLUMNS: dict[Sharing, int] = {"sm": 64, "subpartition": 32}
"""Multiple of columns of a tile."""
NARROWEST = 64
"""Columns of the narrowest tile of the list."""
MOST_COLUMNS = 256
"""Columns of one product at most."""
MAX_STAGES = 5
USABLE_REGISTERS = 252
"""Registers of a window that aligned quads can use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberGemm80Config:
    """Tiles of `tile_m` x `tile_n`; `stages` in shared memory; `sharing`: of operands in registers."""

    tile_m: int
    tile_n: int
    stages: int
    sharing: Sharing = "sm"

    def label(self) -> str:
        """Return a short name, as in `fiber 128x128 s4`."""
        name = f"fiber {self.tile_m}x{self.tile_n} s{self.stages}"
        return name if self.sharing == "sm" else f"{name} own"


TILE = (
    TileParameter("tile_m", int, "rows of C that a FIBER-thread makes", "multiples of 64"),
    TileParameter(
        "tile_n",
        int,
        "columns of C that a FIBER-thread makes",
        f"multiples of 64, of 32 without registers of other subpartitions, up to {MOST_COLUMNS}",
    ),
    TileParameter("stages", int, "slices of A and B in flight", "2 or more, as shared memory holds"),
)
"""What the fields of `FiberGemm80Config` may be, for people."""


def candidates(problem: GemmProblem, machine: Machine, sharing: Sharing = "sm") -> list[FiberGemm80Config]:
    """Return configurations that fit shared memory, largest tiles first. Raises UserError for what cannot be run."""
    _check_problem(problem, machine)
    return list(_candidates(problem, machine, sharing))


def build(problem: GemmProblem, config: FiberGemm80Config, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    _check_problem(problem, machine)
    _check_config(problem, config, machine)
    return gemm_sm80_fiber.build(
        "sm_80",
        FiberGemm80(
            **asdict(problem),
            tile_m=config.tile_m,
            tile_n=config.tile_n,
            stages=config.stages,
            fiber_threads=machine.sms,
            sharing=config.sharing,
        ),
        params=params,
    )


def _candidates(problem: GemmProblem, machine: Machine, sharing: Sharing) -> Iterator[FiberGemm80Config]:
    for tile_m, tile_n in TILES[sharing]:
        fits = (tile_m < 2 * problem.m or tile_m == ROWS) and (tile_n < 2 * problem.n or tile_n == NARROWEST)
        stages = min(MAX_STAGES, _stages_that_fit(problem, tile_m, tile_n, machine))
        fits = fits and fits_heads(problem, tile_n) and _registers(problem, tile_m, tile_n, sharing) <= USABLE_REGISTERS
        if fits and stages >= 2:
            yield FiberGemm80Config(tile_m=tile_m, tile_n=tile_n, stages=stages, sharing=sharing)


def _registers(problem: GemmProblem, tile_m: int, tile_n: int, sharing: Sharing) -> int:
    return max(sum_registers(tile_m, tile_n, problem), fragment_registers(tile_m, tile_n, sharing))


def _stages_that_fit(problem: GemmProblem, tile_m: int, tile_n: int, machine: Machine) -> int:
    stage = (tile_m + tile_n) * TILE_K * problem.element_bytes
    return machine.shared_memory_bytes_per_cta // stage


def _check_problem(problem: GemmProblem, machine: Machine) -> None:
    check_problem(problem, machine)
    if problem.dtype not in DTYPES:
        raise UserError(f"the FIBER-native gemm of sm_80 multiplies {', '.join(DTYPES)}; got {problem.dtype!r}")


def _check_config(problem: GemmProblem, config: FiberGemm80Config, machine: Machine) -> None:
    cols = COLUMNS[config.sharing]
    if config.tile_m % ROWS or config.tile_n % cols or min(config.tile_m, config.tile_n) < 1:
        raise UserError(f"tile_m and tile_n are multiples of {ROWS}, {cols}; got {config.tile_m}, {config.tile_n}")
    if config.tile_n > MOST_COLUMNS:
        raise UserError(f"tile_n is up to {MOST_COLUMNS}, the columns of one product; got {config.tile_n}")
    check_tile(problem, config.tile_n)
    needed = _registers(problem, config.tile_m, config.tile_n, config.sharing)
    if needed > USABLE_REGISTERS:
        raise UserError(
            f"a tile of {config.tile_m} x {config.tile_n} needs {needed} registers in one window of each subpartition, "
            f"which has {USABLE_REGISTERS}",
            hint="use a smaller tile",
        )
    most = _stages_that_fit(problem, config.tile_m, config.tile_n, machine)
    if not 2 <= config.stages <= most:
        raise UserError(f"stages must be 2 to {most} for {config.label()}, as shared memory holds; got {config.stages}")


OWN = NativeKernel(candidates=partial(candidates, sharing="subpartition"), build=build, tile=TILE)
"""For machines whose wefts share registers inside a subpartition only: a copy of B in each."""
SM80_FIBER = NativeKernel(candidates=candidates, build=build, tile=TILE, across=True, instead=(OWN, PHASED))
"""The FIBER-native GEMM of A100."""
