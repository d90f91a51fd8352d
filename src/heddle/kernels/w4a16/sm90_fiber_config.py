"""Configurations of the FIBER-native W4A16 kernels of H100."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels.gemm.check import BARRIER_BYTES
from heddle.kernels.w4a16.check import codebook_bytes
from heddle.kernels.w4a16.shape import ELEMENT_BYTES, TILE_K, W4Problem
from heddle.kernels.w4a16.sm90_fiber import CHUNKS, PART, ROWS, w4_sm90_fiber
from heddle.kernels.w4a16.sm90_fiber_phased import PHASED
from heddle.kernels.w4a16.turned import TurnedTiles
from heddle.machine.spec import Machine

TOKENS = (256, 192, 128, 64)
MAX_STAGES = 6
GROUPS = (2, 1)
CLUSTERS = (2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned90Config:
    """Tiles of 64 `groups` columns of W x `tokens` rows of A; `stages` of A; `cluster` CTAs share slices of A."""

    tokens: int
    stages: int
    groups: int = 2
    cluster: int = 1

    def label(self) -> str:
        """Return a short name, as in `fiber 256x128 s4 c2`."""
        name = f"fiber {self.tokens}x{ROWS * self.groups} s{self.stages}"
        return f"{name} c{self.cluster}" if self.cluster > 1 else name

    @property
    def tiles(self) -> TurnedTiles:
        """The tiles."""
        return TurnedTiles(ROWS * self.groups, self.tokens, self.stages, self.cluster)


TILE = (
    TileParameter("tokens", int, "rows of A that a FIBER-thread multiplies", f"multiples of {PART}, up to 256"),
    TileParameter("stages", int, "slices of A in flight", "2 or more, as shared memory holds"),
    TileParameter("groups", int, f"groups of four wefts that multiply {ROWS} columns of W each", "1, 2"),
    TileParameter("cluster", int, "CTAs side by side that load A for each other", "1, 2"),
)
"""What the fields of `Turned90Config` may be, for people."""


def candidates(problem: W4Problem, machine: Machine) -> list[Turned90Config]:
    """Return tiles worth trying, widest first. Raises UserError for what the kernel cannot run."""
    _check_problem(problem)
    found = []
    for tokens in TOKENS:
        for groups in GROUPS:
            for cluster in CLUSTERS:
                wide = tokens >= 2 * problem.m and tokens > min(TOKENS)
                tall = ROWS * groups * cluster >= 2 * problem.n and groups * cluster > 1
                if wide or tall or (groups == 1 and tokens > PART and problem.m > PART):
                    continue
                stages = min(MAX_STAGES, _most_stages(problem, tokens, machine))
                found.append(Turned90Config(tokens=tokens, stages=stages, groups=groups, cluster=cluster))
    return found


def build(problem: W4Problem, config: Turned90Config, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    _check_problem(problem)
    _check_config(problem, config, machine)
    return w4_sm90_fiber.build("sm_90", problem, config.tiles, machine.sms // config.cluster, params=params)


def _most_stages(problem: W4Problem, tokens: int, machine: Machine) -> int:
    chunks = CHUNKS * PART * ROWS * ELEMENT_BYTES
    room = machine.shared_memory_bytes_per_cta - codebook_bytes(problem) - chunks - BARRIER_BYTES
    return room // (tokens * TILE_K * ELEMENT_BYTES)


def _check_problem(problem: W4Problem) -> None:
    least = 2 * problem.block
    if problem.k < least:
        raise UserError(f"the FIBER-native kernel takes two blocks of {problem.block} of k or more; k = {problem.k}")


def _check_config(problem: W4Problem, config: Turned90Config, machine: Machine) -> None:
    if config.tokens % PART or not PART <= config.tokens <= max(TOKENS):
        raise UserError(f"tokens must be a multiple of {PART} up to {max(TOKENS)}, got {config.tokens}")
    for name, allowed in (("groups", GROUPS), ("cluster", CLUSTERS)):
        if getattr(config, name) not in allowed:
            raise UserError(f"{name} must be 1 or 2, got {getattr(config, name)}")
    most = _most_stages(problem, config.tokens, machine)
    if not 2 <= config.stages <= most:
        raise UserError(f"stages must be 2 to {most} for {config.label()}, as shared memory holds; got {config.stages}")


SM90_FIBER = NativeKernel(candidates=candidates, build=build, tile=TILE, instead=(PHASED,))
"""The FIBER-native W4A16 kernels of H100; without bits the roles of today's kernel meet at mbarriers."""
