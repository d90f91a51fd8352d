"""Configurations of the FIBER-native GEMM of H100: which are worth trying, and what they must keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels.gemm.check import BARRIER_BYTES, check_problem
from heddle.kernels.gemm.rope import check_tile, fits_heads
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.gemm.sm90_fiber import gemm_sm90_fiber
from heddle.kernels.gemm.sm90_fiber_phased import gemm_sm90_fiber_phased
from heddle.kernels.gemm.sm90_fiber_shape import BLOCK_M, EPILOGUE_N, PART_N, TILE_K, Exchange, FiberGemm
from heddle.machine.spec import Machine

DTYPES = ("fp16", "bf16")
COLUMNS = (256, 192, 128, 96, 64)
CLUSTERS = (2, 1)
MAX_STAGES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberGemmConfig:
    """Tiles of 64 `groups` x `tile_n`; `stages` in shared memory; `cluster` CTAs share B; `fiber_threads` on an SM.

    `exchange`: how roles hand tensors over.
    """

    tile_n: int
    stages: int
    groups: int = 2
    cluster: int = 1
    fiber_threads: int = 1
    exchange: Exchange = "bits"

    def label(self) -> str:
        """Return a short name, as in `fiber 128x256 s4 g2 c2`."""
        parts = [f"fiber {BLOCK_M * self.groups}x{self.tile_n}", f"s{self.stages}", f"g{self.groups}"]
        parts += [f"c{self.cluster}"] if self.cluster > 1 else []
        parts += [f"t{self.fiber_threads}"] if self.fiber_threads > 1 else []
        return " ".join(parts if self.exchange == "bits" else [*parts, self.exchange])


TILE = (
    TileParameter("tile_n", int, "columns of C that a FIBER-thread makes", "multiples of 8 up to 128, of 16 up to 256"),
    TileParameter("stages", int, "slices of A and B in flight", "2 or more, as shared memory holds"),
    TileParameter("groups", int, "groups of four wefts that multiply 64 rows each", "1, 2"),
    TileParameter("cluster", int, "CTAs, one above the other, that load B for each other", "1, 2"),
    TileParameter("fiber_threads", int, "FIBER-threads on an SM", "1 or more, as registers and shared memory hold"),
)
"""What the fields of `FiberGemmConfig` may be, for people."""


def candidates(problem: GemmProblem, machine: Machine, exchange: Exchange = "bits") -> list[FiberGemmConfig]:
    """Return configurations that fit shared memory, widest tiles first. Raises UserError for what cannot be run."""
    _check_problem(problem, machine)
    return list(_candidates(problem, machine, exchange))


def build(problem: GemmProblem, config: FiberGemmConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    _check_problem(problem, machine)
    _check_config(problem, config, machine)
    code = gemm_sm90_fiber if config.exchange == "bits" else gemm_sm90_fiber_phased
    return code.build("sm_90", _kernel(problem, config, machine), params=params)


def _kernel(problem: GemmProblem, config: FiberGemmConfig, machine: Machine) -> FiberGemm:
    """The kernel, with a second chunk of C in shared memory where there is room for it."""
    kernel = FiberGemm(
        **asdict(problem),
        tile_n=config.tile_n,
        stages=config.stages,
        groups=config.groups,
        cluster=config.cluster,
        exchange=config.exchange,
        fiber_threads=machine.sms * config.fiber_threads,
    )
    more = replace(kernel, output_stages=2)
    return more if config.stages <= _most_stages(more, machine) else kernel


def _candidates(problem: GemmProblem, machine: Machine, exchange: Exchange) -> Iterator[FiberGemmConfig]:
    for groups in (2, 1):
        for tile_n in COLUMNS:
            for cluster in CLUSTERS:
                config = FiberGemmConfig(
                    tile_n=tile_n, stages=MAX_STAGES, groups=groups, cluster=cluster, exchange=exchange
                )
                stages = min(MAX_STAGES, _most_stages(_kernel(problem, config, machine), machine))
                wide = tile_n >= 2 * problem.n and tile_n > min(COLUMNS)
                fits = fits_heads(problem, tile_n) and (problem.epilogue == "none" or _even(tile_n))
                tall = cluster > 1 and problem.m <= BLOCK_M * groups
                if stages >= 2 and fits and not wide and not tall:
                    yield replace(config, stages=stages)


def _even(tile_n: int) -> bool:
    """Whether a part of a tile has a whole number of what an epilogue works on."""
    return tile_n % (EPILOGUE_N if tile_n <= PART_N else 2 * EPILOGUE_N) == 0


def _most_stages(kernel: FiberGemm, machine: Machine) -> int:
    return (machine.shared_memory_bytes_per_cta - BARRIER_BYTES - kernel.output_bytes) // kernel.stage_bytes


def _check_problem(problem: GemmProblem, machine: Machine) -> None:
    check_problem(problem, machine)
    if problem.dtype not in DTYPES:
        raise UserError(f"the FIBER-native gemm of sm_90 multiplies {', '.join(DTYPES)}; got {problem.dtype!r}")
    if problem.k <= TILE_K:
        raise UserError(f"the FIBER-native gemm of sm_90 needs k above {TILE_K}, got {problem.k}")


def _check_config(problem: GemmProblem, config: FiberGemmConfig, machine: Machine) -> None:
    step = 8 if config.tile_n <= PART_N else 16
    if config.groups not in (1, 2):
        raise UserError(f"groups must be 1 or 2 (one a window), got {config.groups}")
    if config.cluster not in CLUSTERS:
        raise UserError(f"cluster must be 1 or 2, got {config.cluster}")
    if config.tile_n % step or not 8 <= config.tile_n <= max(COLUMNS):
        raise UserError(
            f"tile_n must be a multiple of 8 up to {PART_N}, or of 16 up to {max(COLUMNS)}; got {config.tile_n}"
        )
    check_tile(problem, config.tile_n)
    if problem.epilogue != "none" and not _even(config.tile_n):
        raise UserError(
            f"{problem.epilogue} works on {EPILOGUE_N} columns of a part of a tile at a time: tile_n is a multiple of "
            f"{EPILOGUE_N} up to {PART_N}, or of {2 * EPILOGUE_N}; got {config.tile_n}"
        )
    most = _most_stages(_kernel(problem, config, machine), machine)
    if not 2 <= config.stages <= most:
        raise UserError(f"stages must be 2 to {most} for {config.label()}, as shared memory holds; got {config.stages}")
    if config.fiber_threads < 1:
        raise UserError(f"fiber_threads must be at least 1, got {config.fiber_threads}")


LITERAL = NativeKernel(
    candidates=partial(candidates, exchange="shared"), build=build, tile=TILE, needs=("dynamic_parallelism",)
)
"""For machines whose wefts share no registers."""
PHASED = NativeKernel(
    candidates=partial(candidates, exchange="barriers"),
    build=build,
    tile=TILE,
    needs=("dynamic_parallelism", "register_sharing"),
)
"""For machines without full and empty bits."""
SM90_FIBER = NativeKernel(candidates=candidates, build=build, tile=TILE, instead=(PHASED, LITERAL))
"""The FIBER-native GEMM of H100; without bits the roles meet at barriers, without sharing in shared memory."""
