"""Attention backward on H100 with wefts that share no registers: the roles of FlashAttention 3.

Two roles of four wefts multiply and differentiate 64 keys each, one copies blocks of Q and dO, one adds dQ; data of
other wefts pass through shared memory, named barriers and mbarriers order them, as today. Products are wgmma. What is
left of FIBER: each role takes as many registers as it needs of those that no weft owns.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.backward.shape import backward_flops
from heddle.kernels.attention.backward.sm90_fa3_config import (
    GROUPS,
    REGISTERS,
    Fa3BackwardConfig,
    check_fa3_backward,
    fa3_backward_config,
)
from heddle.kernels.attention.backward.sm90_fa3_consumer import Consumer
from heddle.kernels.attention.backward.sm90_fa3_items import backward_items
from heddle.kernels.attention.backward.sm90_fa3_memory import Memory
from heddle.kernels.attention.backward.sm90_fa3_producer import add_dq, load
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, kernel
from heddle.machine.spec import Machine

COPY_REGISTERS = 8
"""Registers of a role of one weft."""
TILE = (
    TileParameter("tile_m", int, "queries of a step", "multiples of 16, with dq columns of 64, with dq rows of 128"),
    TileParameter("dq", str, "how the two roles divide the product for dQ", "swapped, columns, rows"),
)
"""What the fields of `LiteralBackward90Config` may be, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralBackward90Config(Fa3BackwardConfig):
    """The configuration of FlashAttention 3."""

    def label(self) -> str:
        """Return a short name, as in `fiber-bwd 80x128 g2 s2 dq-swapped launch`."""
        return Fa3BackwardConfig.label(self).replace("fa3", "fiber")


@kernel
def attention_bwd_fiber_literal(
    k: Builder, problem: AttentionProblem, config: LiteralBackward90Config, items: dict[str, list[int]]
) -> None:
    """Two roles that multiply and differentiate, one that copies, and one that adds dQ."""
    k.flops = backward_flops(problem)
    k.work_items(items, clusters=len(items["key"]), schedule="launch")
    memory = Memory(k, problem, config, wefts=True)
    consumers = {f"consumer{group}": Consumer(k, problem, config, memory, group, items) for group in range(GROUPS)}
    k.set_fiber_num(load=1, add=1, **dict.fromkeys(consumers, GROUP_WARPS))
    with k.role("load", window=0, registers=COPY_REGISTERS):
        load(k, config, memory, any(items["more"]))
    with k.role("add", window=1, registers=COPY_REGISTERS):
        add_dq(k, config, memory)
    for name, consumer in consumers.items():
        with k.role(name, window=consumer.group, registers=REGISTERS[-1]):
            consumer.run()


def candidates(problem: AttentionProblem, machine: Machine) -> list[LiteralBackward90Config]:
    """Return the one configuration, that of FlashAttention 3. Raises UserError for what cannot be run."""
    today = fa3_backward_config(problem, machine)
    chosen = LiteralBackward90Config(**{f.name: getattr(today, f.name) for f in fields(Fa3BackwardConfig)})
    check_fa3_backward(problem, chosen, machine)
    return [chosen]


def build(
    problem: AttentionProblem, config: LiteralBackward90Config, machine: Machine, params: ProgramParams
) -> TileProgram:
    """Return the tile program. Raises UserError if the configuration does not fit."""
    check_fa3_backward(problem, config, machine)
    items = backward_items(problem, config)
    return attention_bwd_fiber_literal.build("sm_90", problem, config, items, params=params)


LITERAL = NativeKernel(candidates=candidates, build=build, tile=TILE, needs=("dynamic_parallelism",))
"""For machines whose wefts share no registers."""
