"""Configurations of the FIBER-native GEMM of B200: which are worth trying, and what they must keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels.gemm.check import BARRIER_BYTES, check_problem
from heddle.kernels.gemm.rope import check_tile, fits_heads
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.gemm.sm100_fiber import CHUNK, SLOTS, TILE_K, TILE_M, FiberGemm, gemm_sm100_fiber
from heddle.kernels.gemm.sm100_fiber_phased import PHASED
from heddle.machine.spec import Machine

DTYPES = ("fp16", "bf16")
COLUMNS = (256, 128, 64)
MAX_STAGES = 8
FRAGMENTS = 2
"""Tiles of A in the pool: one is multiplied while the other is loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberGemmConfig:
    """Tiles of 128 x `tile_n`, `stages` in shared memory."""

    tile_n: int
    stages: int

    def label(self) -> str:
        """Return a short name, as in `fiber 128x256 s4`."""
        return f"fiber {TILE_M}x{self.tile_n} s{self.stages}"


TILE = (
    TileParameter("tile_n", int, "columns of C that a FIBER-thread makes", f"multiples of {CHUNK}, up to 256"),
    TileParameter("stages", int, "slices of A and B in flight", "2 or more, as shared memory holds"),
)
"""What the fields of `FiberGemmConfig` may be, for people."""


def candidates(problem: GemmProblem, machine: Machine) -> list[FiberGemmConfig]:
    """Return configurations that fit, widest tiles first. Raises UserError for what cannot be run."""
    _check_problem(problem, machine)
    return list(_candidates(problem, machine))


def build(problem: GemmProblem, config: FiberGemmConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    _check_problem(problem, machine)
    _check_config(problem, config, machine)
    kernel = FiberGemm(
        **asdict(problem),
        tile_n=config.tile_n,
        stages=config.stages,
        fragments=FRAGMENTS,
        fiber_threads=machine.sms,
    )
    return gemm_sm100_fiber.build("sm_100", kernel, params=params)


def _candidates(problem: GemmProblem, machine: Machine) -> Iterator[FiberGemmConfig]:
    for tile_n in COLUMNS:
        if (tile_n < 2 * problem.n or tile_n == min(COLUMNS)) and fits_heads(problem, tile_n):
            yield FiberGemmConfig(tile_n=tile_n, stages=min(MAX_STAGES, _stages_that_fit(problem, tile_n, machine)))


def _stages_that_fit(problem: GemmProblem, tile_n: int, machine: Machine) -> int:
    stage = (TILE_M + tile_n) * TILE_K * dtype_bytes(problem.dtype)
    return (machine.shared_memory_bytes_per_cta - BARRIER_BYTES) // stage


def _check_problem(problem: GemmProblem, machine: Machine) -> None:
    check_problem(problem, machine)
    if problem.dtype not in DTYPES:
        raise UserError(f"the FIBER-native gemm of sm_100 multiplies {', '.join(DTYPES)}; got {problem.dtype!r}")
    depth = FRAGMENTS * TILE_K
    if problem.k % depth or problem.k < 2 * depth:
        raise UserError(
            f"the FIBER-native gemm of sm_100 needs k a multiple of {depth} from {2 * depth} on, got {problem.k}"
        )


def _check_config(problem: GemmProblem, config: FiberGemmConfig, machine: Machine) -> None:
    most = machine.tensor_memory_columns // SLOTS
    if config.tile_n % CHUNK or not CHUNK <= config.tile_n <= most:
        raise UserError(f"tile_n must be a multiple of {CHUNK} up to {most}, got {config.tile_n}")
    check_tile(problem, config.tile_n)
    stages = _stages_that_fit(problem, config.tile_n, machine)
    if not 2 <= config.stages <= stages:
        raise UserError(
            f"stages must be 2 to {stages} for {config.label()}, as shared memory holds; got {config.stages}"
        )


SM100_FIBER = NativeKernel(
    candidates=candidates,
    build=build,
    tile=TILE,
    needs=("dynamic_parallelism", "fine_scheduling", "register_sharing"),
    instead=(PHASED,),
)
"""The FIBER-native GEMM of B200; without bits the roles of today's kernel meet at mbarriers."""
