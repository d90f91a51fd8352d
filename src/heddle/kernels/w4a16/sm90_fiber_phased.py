"""W4A16 on H100 with wefts, but without full and empty bits: roles meet at mbarriers, products are wgmma.

As in today's kernel the wefts that multiply make the weights, in two sets of registers that take turns, since wgmma
takes its first operand from registers of the warps that issue it. Nothing passes between roles in registers, whether a
subpartition shares them or not: one form serves both steps. Roles have four wefts and 64 columns of W, and store their
own; no two of them meet, so that one stores while another one multiplies.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.gemm.sm90_fiber_shape import COPY_REGISTERS
from heddle.kernels.w4a16 import sm90_wgmma_config as today
from heddle.kernels.w4a16.shape import TILE, W4Config, W4Problem
from heddle.kernels.w4a16.sm90_wgmma import GROUP_ROWS, PAIR, Consumers
from heddle.kernels.w4a16.turned import Tokens, TurnedTiles
from heddle.lang import Builder, kernel
from heddle.machine.spec import Machine

CONSUMER_REGISTERS = 240
"""Registers of a role that makes weights and multiplies, as in today's kernel; one lies in each window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasedConfig(W4Config):
    """The configuration of today's kernel; `warps` are the wefts that make weights and multiply."""

    def label(self) -> str:
        """Return a short name, that of today's with `fiber` before it."""
        return f"fiber {W4Config.label(self)}"


@kernel
def w4_sm90_fiber_phased(k: Builder, problem: W4Problem, tiles: TurnedTiles, clusters: int) -> None:
    """Persistent; the next tile's slices are copied during the epilogue."""
    k.flops, k.cluster_size = problem.flops, tiles.cluster
    items = tiles.items(problem, clusters)
    k.work_items(items | {"pairs": [problem.k // PAIR] * len(items["row"])}, clusters=clusters)
    groups = tiles.weights // GROUP_ROWS
    tokens = Tokens(k, problem, tiles, GROUP_WARPS * groups)
    consumers = Consumers(k, problem, tiles, tokens, groups)
    k.set_fiber_num(copy=1, **{f"consume_{g}": GROUP_WARPS for g in range(groups)})

    with k.role("copy", window=0, registers=COPY_REGISTERS):
        if tiles.cluster > 1:
            k.cluster_sync(warps=1)
        for item in k.work():
            tokens.load(item)
        for _ in range(tiles.stages if tiles.cluster > 1 else 0):  # until no other CTA signals this one any more
            tokens.empty.wait(tokens.ring, flip=True)
            tokens.ring.advance()

    for g in range(groups):
        with k.role(f"consume_{g}", window=g, registers=CONSUMER_REGISTERS):
            consumers.maker.begin(g)
            for item in k.work():
                consumers.multiply(item, g)
                consumers.store(item, g)
            k.tma_store_wait(pending=0)


def candidates(problem: W4Problem, machine: Machine) -> list[PhasedConfig]:
    """Return those of today's kernel."""
    return [
        PhasedConfig(**{f.name: getattr(config, f.name) for f in fields(W4Config)})
        for config in today.candidates(problem, machine)
    ]


def build(problem: W4Problem, config: W4Config, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    today.check_config(problem, config, machine)
    tiles = today.tiles_of(problem, config)
    return w4_sm90_fiber_phased.build("sm_90", problem, tiles, machine.sms // tiles.cluster, params=params)


PHASED = NativeKernel(candidates=candidates, build=build, tile=TILE, needs=("dynamic_parallelism",))
"""For machines without full and empty bits, with or without registers that wefts share."""
