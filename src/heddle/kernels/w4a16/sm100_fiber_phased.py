"""W4A16 on B200 with wefts, but without full and empty bits: the roles of today's kernel, ordered by mbarriers.

Products are tcgen05.mma, whose first operand, the weights, is in tensor memory. So wefts that make weights hand them on
there, and nothing passes between roles in registers, whether a subpartition shares them or not: one form serves both
steps. What is left of FIBER: wefts own no registers, so that eight may make weights where today's roles hold four.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.w4a16 import sm100_tcgen05_config as today
from heddle.kernels.w4a16.copied import PAIR
from heddle.kernels.w4a16.shape import TILE, W4Config, W4Problem
from heddle.kernels.w4a16.sm100_tcgen05 import CHUNK, REGISTERS, Plan, Roles
from heddle.lang import Builder, kernel
from heddle.machine.spec import Machine

ISSUE_REGISTERS = 16
"""Registers of a role of one weft, which starts copies or products."""
STORE_REGISTERS = CHUNK + 40
"""Registers of the role that stores: a part of the sums, their halves in pairs, addresses."""
OTHERS_TRIED = 2
"""Tiles that are tried with the other number of wefts that make weights, widest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasedConfig(W4Config):
    """The configuration of today's kernel; `warps` are wefts that make weights."""

    def label(self) -> str:
        """Return a short name, that of today's with `fiber` before it."""
        return f"fiber {W4Config.label(self)}"


class _Wefts:
    """What each role does before its first item and after its last, in place of meetings of all warps.

    The CTAs of a pair meet before the first copies: all else that signals the other CTA comes after one. A CTA stays
    until the other one has signalled it for the last time: stages, places of weights and sums have been given back.
    """

    def __init__(self, k: Builder, roles: Roles, plan: Plan) -> None:
        self.k, self.roles, self.plan, self.pair = k, roles, plan, plan.tiles.cluster > 1

    def begin(self, name: str) -> None:
        """Meet the other CTA, or copy codebooks."""
        if self.pair and name in ("load", "copy"):
            self.k.cluster_sync(warps=2)
        if name.startswith("make"):
            self.roles.maker.begin(int(name[-1]))

    def end(self, name: str) -> None:
        """Wait for what the other CTA gives back last."""
        roles, plan = self.roles, self.plan
        last = {
            "load": (roles.empty, roles.ring, plan.tiles.stages),
            "multiply": (roles.acc_empty, roles.sums, plan.sums),
        }
        made = (roles.w_empty, roles.made, plan.blocks)
        if self.pair and (name in last or name.startswith("make")):
            barrier, ring, stages = last.get(name, made)
            for _ in range(stages):
                barrier.wait(ring, flip=True)
                ring.advance()


@kernel
def w4_sm100_fiber_phased(k: Builder, problem: W4Problem, plan: Plan, clusters: int) -> None:
    """Persistent; weights and tokens of the next tile come while a tile is stored."""
    k.flops, k.cluster_size = problem.flops, plan.tiles.cluster
    items = plan.tiles.items(problem, clusters)
    k.work_items(items | {"pairs": [problem.k // PAIR] * len(items["row"])}, clusters=clusters)
    roles = Roles(k, problem, plan)
    wefts, makers = _Wefts(k, roles, plan), [f"make_{group}" for group in range(plan.groups)]
    k.set_fiber_num(load=1, copy=1, multiply=1, **dict.fromkeys((*makers, "store"), GROUP_WARPS))
    places = {name: (0, ISSUE_REGISTERS) for name in ("load", "copy", "multiply")}
    places |= {name: (index, REGISTERS[plan.groups]) for index, name in enumerate(makers)}
    places["store"] = (1, STORE_REGISTERS)
    for name, (window, registers) in places.items():
        pair = name == "multiply" and plan.tiles.cluster > 1
        with k.role(name, window=window, registers=registers, leader_only=pair):
            wefts.begin(name)
            for item in k.work():
                getattr(roles, name)(item)
            wefts.end(name)


def candidates(problem: W4Problem, machine: Machine) -> list[PhasedConfig]:
    """Return those of today's kernel, and some with the other number of wefts that make weights."""
    found = today.candidates(problem, machine)
    found += [replace(config, warps=sum(today.WARPS) - config.warps) for config in found[:OTHERS_TRIED]]
    return [PhasedConfig(**{f.name: getattr(config, f.name) for f in fields(W4Config)}) for config in found]


def build(problem: W4Problem, config: W4Config, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    today.check_config(problem, config, machine)
    plan = today.plan_of(problem, config, machine)
    return w4_sm100_fiber_phased.build("sm_100", problem, plan, machine.sms // plan.tiles.cluster, params=params)


PHASED = NativeKernel(candidates=candidates, build=build, tile=TILE, needs=("dynamic_parallelism",))
"""For machines without full and empty bits, with or without registers that wefts share."""
