"""GEMM on B200 with wefts, but without full and empty bits: the roles of today's kernel, ordered by mbarriers.

Products are tcgen05.mma: both operands come from shared memory, sums grow in tensor memory, from where the role that
stores reads them. So nothing passes between roles in registers, whether a subpartition shares them or not, and one form
serves both steps. What is left of FIBER: wefts own no registers. Two CTAs may be a pair.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels.gemm.candidates import candidates
from heddle.kernels.gemm.check import check_config, check_items, check_problem
from heddle.kernels.gemm.raster import item_count, work_items
from heddle.kernels.gemm.shape import TILE, GemmConfig, GemmProblem
from heddle.kernels.gemm.sm100 import ACC_STAGES, EPILOGUE_WARPS, REGISTERS, Roles
from heddle.lang import Builder, kernel
from heddle.machine.spec import Machine

ISSUE_REGISTERS = 16
"""Registers of a role of one weft, which starts copies or products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasedConfig(GemmConfig):
    """The configuration of today's kernel."""

    def label(self) -> str:
        """Return a short name, that of today's with `fiber` before it."""
        return f"fiber {GemmConfig.label(self)}"


@kernel
def gemm_sm100_fiber_phased(
    k: Builder, problem: GemmProblem, config: GemmConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """Persistent over the tiles of C; every hand-over between roles is by mbarriers.

    The CTAs of a pair meet before the first copy: the other roles wait for what comes after it. A CTA stays until the
    other one has signalled it for the last time: stages and accumulators have been given back.
    """
    k.flops, k.cluster_size = problem.flops, config.cluster
    k.work_items(items, clusters=clusters)
    roles, pair = Roles(k, problem, config), config.cluster > 1
    k.set_fiber_num(load=1, mma=1, epilogue=EPILOGUE_WARPS)

    with k.role("load", window=0, registers=ISSUE_REGISTERS):
        if pair:
            k.cluster_sync(warps=1)
        for item in k.work():
            roles.load(item)
        for _ in range(config.stages if pair else 0):
            roles.empty.wait(roles.ring, flip=True)
            roles.ring.advance()

    with k.role("mma", window=0, registers=ISSUE_REGISTERS, leader_only=pair):
        for item in k.work():
            roles.multiply(item)
        for _ in range(ACC_STAGES if pair else 0):
            roles.acc_empty.wait(roles.acc_ring, flip=True)
            roles.acc_ring.advance()

    with k.role("epilogue", window=1, registers=REGISTERS):
        for item in k.work():
            roles.store(item)
        roles.writer.drain()


def phased_candidates(problem: GemmProblem, machine: Machine) -> list[PhasedConfig]:
    """Return those of today's kernel. Raises UserError for what cannot be run."""
    check_problem(problem, machine)
    return [
        PhasedConfig(**{f.name: getattr(config, f.name) for f in fields(GemmConfig)})
        for config in candidates(problem, machine)
    ]


def build(problem: GemmProblem, config: GemmConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    check_problem(problem, machine)
    check_config(problem, config, machine)
    check_items(problem, config)
    wave = machine.sms // config.cluster
    clusters = min(item_count(problem, config), wave)
    items = work_items(problem, config, clusters, wave)
    return gemm_sm100_fiber_phased.build("sm_100", problem, config, items, clusters, params=params)


PHASED = NativeKernel(candidates=phased_candidates, build=build, tile=TILE, needs=("dynamic_parallelism",))
"""For machines without full and empty bits, with or without registers that wefts share."""
