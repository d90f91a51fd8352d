"""Configurations of the FIBER-native GEMM of H100: which are worth trying, and what they must keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels.gemm.check import BARRIER_BYTES, check_problem
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.gemm.sm90_fiber import BLOCK_M, TILE_K, FiberGemm, gemm_sm90_fiber
from heddle.machine.spec import Machine

DTYPES = ("fp16", "bf16")
COLUMNS = (128, 96, 64)
MAX_STAGES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberGemmConfig:
    """Tiles of 64 `groups` x `tile_n`; `stages` in shared memory; `fiber_threads` on an SM."""

    tile_n: int
    stages: int
    groups: int = 2
    fiber_threads: int = 1

    def label(self) -> str:
        """Return a short name, as in `fiber 128x128 s4 g2`."""
        parts = [f"fiber {BLOCK_M * self.groups}x{self.tile_n}", f"s{self.stages}", f"g{self.groups}"]
        return " ".join([*parts, f"t{self.fiber_threads}"] if self.fiber_threads > 1 else parts)


TILE = (
    TileParameter("tile_n", int, "columns of C that a FIBER-thread makes", "multiples of 8, up to 128"),
    TileParameter("stages", int, "slices of A and B in flight", "2 or more, as shared memory holds"),
    TileParameter("groups", int, "groups of four wefts that multiply 64 rows each", "1, 2"),
    TileParameter("fiber_threads", int, "FIBER-threads on an SM", "1 or more, as registers and shared memory hold"),
)
"""What the fields of `FiberGemmConfig` may be, for people."""


def candidates(problem: GemmProblem, machine: Machine) -> list[FiberGemmConfig]:
    """Return configurations that fit shared memory, widest tiles first. Raises UserError for what cannot be run."""
    _check_problem(problem, machine)
    return list(_candidates(problem, machine))


def build(problem: GemmProblem, config: FiberGemmConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    _check_problem(problem, machine)
    _check_config(problem, config, machine)
    kernel = FiberGemm(
        m=problem.m,
        n=problem.n,
        k=problem.k,
        dtype=problem.dtype,
        tile_n=config.tile_n,
        stages=config.stages,
        groups=config.groups,
        fiber_threads=machine.sms * config.fiber_threads,
    )
    return gemm_sm90_fiber.build("sm_90", kernel, params=params)


def _candidates(problem: GemmProblem, machine: Machine) -> Iterator[FiberGemmConfig]:
    for groups in (2, 1):
        for tile_n in COLUMNS:
            stages = min(MAX_STAGES, _stages_that_fit(problem, groups, tile_n, machine))
            if stages >= 2 and (tile_n < 2 * problem.n or tile_n == min(COLUMNS)):
                yield FiberGemmConfig(tile_n=tile_n, stages=stages, groups=groups)


def _stage_bytes(problem: GemmProblem, groups: int, tile_n: int) -> int:
    return (BLOCK_M * groups + tile_n) * TILE_K * dtype_bytes(problem.dtype)


def _stages_that_fit(problem: GemmProblem, groups: int, tile_n: int, machine: Machine) -> int:
    return (machine.shared_memory_bytes_per_cta - BARRIER_BYTES) // _stage_bytes(problem, groups, tile_n)


def _check_problem(problem: GemmProblem, machine: Machine) -> None:
    check_problem(problem, machine)
    if problem.dtype not in DTYPES:
        raise UserError(f"the FIBER-native gemm of sm_90 multiplies {', '.join(DTYPES)}; got {problem.dtype!r}")
    if problem.k <= TILE_K:
        raise UserError(f"the FIBER-native gemm of sm_90 needs k above {TILE_K}, got {problem.k}")


def _check_config(problem: GemmProblem, config: FiberGemmConfig, machine: Machine) -> None:
    most = _stages_that_fit(problem, config.groups, config.tile_n, machine)
    if config.groups not in (1, 2):
        raise UserError(f"groups must be 1 or 2 (one a window), got {config.groups}")
    if config.tile_n % 8 or not 8 <= config.tile_n <= max(COLUMNS):
        raise UserError(f"tile_n must be a multiple of 8 up to {max(COLUMNS)}, got {config.tile_n}")
    if not 2 <= config.stages <= most:
        raise UserError(f"stages must be 2 to {most} for {config.label()}, as shared memory holds; got {config.stages}")
    if config.fiber_threads < 1:
        raise UserError(f"fiber_threads must be at least 1, got {config.fiber_threads}")


SM90_FIBER = NativeKernel(candidates=candidates, build=build, tile=TILE)
"""The FIBER-native GEMM of H100."""
