"""Configurations of the FIBER-native W4A16 kernels of B200."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels.gemm.check import BARRIER_BYTES
from heddle.kernels.gemm.sm100_fiber import CHUNK, SLOTS, TILE_M
from heddle.kernels.w4a16.check import codebook_bytes
from heddle.kernels.w4a16.shape import ELEMENT_BYTES, TILE_K, W4Problem
from heddle.kernels.w4a16.sm100_fiber import PAIR, w4_sm100_fiber
from heddle.kernels.w4a16.sm100_fiber_phased import PHASED
from heddle.kernels.w4a16.turned import TurnedTiles
from heddle.machine.spec import Machine

TOKENS = (256, 192, 128, 64)
MAX_STAGES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned100Config:
    """Tiles of 128 columns of W x `tokens` rows of A, `stages` of A in shared memory."""

    tokens: int
    stages: int

    def label(self) -> str:
        """Return a short name, as in `fiber 256x128 s6`."""
        return f"fiber {self.tokens}x{TILE_M} s{self.stages}"


TILE = (
    TileParameter("tokens", int, "rows of A that a FIBER-thread multiplies", f"multiples of {CHUNK}, up to 256"),
    TileParameter("stages", int, "slices of A in flight", "2 or more, as shared memory holds"),
)
"""What the fields of `Turned100Config` may be, for people."""


def candidates(problem: W4Problem, machine: Machine) -> list[Turned100Config]:
    """Return tiles worth trying, widest first. Raises UserError for what the kernel cannot run."""
    _check_problem(problem)
    stages = {tokens: min(MAX_STAGES, _most_stages(problem, tokens, machine)) for tokens in TOKENS}
    fitting = [tokens for tokens in TOKENS if tokens < 2 * problem.m or tokens == min(TOKENS)]
    return [Turned100Config(tokens=tokens, stages=stages[tokens]) for tokens in fitting]


def build(problem: W4Problem, config: Turned100Config, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    _check_problem(problem)
    most_tokens = machine.tensor_memory_columns // SLOTS
    if config.tokens % CHUNK or not CHUNK <= config.tokens <= most_tokens:
        raise UserError(f"tokens must be a multiple of {CHUNK} up to {most_tokens}, got {config.tokens}")
    most = _most_stages(problem, config.tokens, machine)
    if not 2 <= config.stages <= most:
        raise UserError(f"stages must be 2 to {most} for {config.label()}, as shared memory holds; got {config.stages}")
    tiles = TurnedTiles(TILE_M, config.tokens, config.stages)
    return w4_sm100_fiber.build("sm_100", problem, tiles, machine.sms, params=params)


def _most_stages(problem: W4Problem, tokens: int, machine: Machine) -> int:
    room = machine.shared_memory_bytes_per_cta - codebook_bytes(problem) - BARRIER_BYTES
    return room // (tokens * TILE_K * ELEMENT_BYTES)


def _check_problem(problem: W4Problem) -> None:
    if problem.k % PAIR or problem.k < 2 * PAIR or (not problem.looks_up and problem.group != PAIR):
        raise UserError(
            f"the FIBER-native kernel of sm_100 takes k in steps of {PAIR}, two or more, and groups of as many; "
            f"k = {problem.k}, group = {problem.group}"
        )


SM100_FIBER = NativeKernel(
    candidates=candidates,
    build=build,
    tile=TILE,
    needs=("dynamic_parallelism", "fine_scheduling", "register_sharing"),
    instead=(PHASED,),
)
"""The FIBER-native W4A16 kernels of B200; without bits the roles of today's kernel meet at mbarriers."""
