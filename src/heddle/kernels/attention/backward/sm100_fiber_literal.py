"""Attention backward on B200 with wefts that share no registers: the roles of FlashAttention 4, ordered by mbarriers.

Products are tcgen05.mma of 128 rows, with operands in shared and tensor memory, where P and dS pass to them, and pairs
of FIBER-threads make them as pairs of CTAs do today. So nothing that passes between roles is in registers, with or
without registers that a subpartition shares.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.backward.shape import backward_flops
from heddle.kernels.attention.backward.sm100_fa4 import load
from heddle.kernels.attention.backward.sm100_fa4_compute import Compute
from heddle.kernels.attention.backward.sm100_fa4_config import (
    GROUPS,
    PAIR,
    Fa4BackwardConfig,
    backward_items,
    check_fa4_backward,
    fa4_backward_config,
)
from heddle.kernels.attention.backward.sm100_fa4_memory import Memory
from heddle.kernels.attention.backward.sm100_fa4_out import Gradients, reduce, reduce_pair
from heddle.kernels.attention.backward.sm100_fa4_pair import Loads, relay
from heddle.kernels.attention.backward.sm100_fa4_pair_compute import PairCompute
from heddle.kernels.attention.backward.sm100_fa4_pair_memory import PairMemory
from heddle.kernels.attention.backward.sm100_fa4_pair_products import PairProducts
from heddle.kernels.attention.backward.sm100_fa4_products import Products
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, kernel
from heddle.machine.spec import Machine

COPY_REGISTERS = 8
"""Registers of a role of one weft."""
COMPUTE_REGISTERS = 136
"""Registers of a role that makes P and dS, as in FlashAttention 4."""
REDUCE_REGISTERS = 100
"""Registers of the role that brings dQ out: what is left of its window."""
TILE = (TileParameter("pairs", int, "1 for pairs of FIBER-threads, at head size 128", "0 at head size 64, else 1"),)
"""What the fields of `LiteralBackward100Config` may be, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralBackward100Config(Fa4BackwardConfig):
    """The configuration of FlashAttention 4."""

    def label(self) -> str:
        """Return a short name, as in `fiber-bwd 128x128 pairs launch`."""
        return Fa4BackwardConfig.label(self).replace("fa4", "fiber")


@kernel
def attention_bwd_sm100_fiber_literal(
    k: Builder, problem: AttentionProblem, config: LiteralBackward100Config, items: dict[str, list[int]]
) -> None:
    """Loads, products, the way of dQ out, and two roles that make P and dS, each in wefts of its own."""
    k.flops = backward_flops(problem)
    if config.pairs:
        k.cluster_size = PAIR
    k.work_items(items, clusters=len(items["key"]), schedule="launch")
    has = {name: any(items[name]) for name in ("more", "only")}
    if config.pairs:
        _pair(k, problem, has)
    else:
        _single(k, problem, has)


def _single(k: Builder, problem: AttentionProblem, has: dict[str, bool]) -> None:
    """The roles of one FIBER-thread by itself."""
    memory = Memory(k, problem, wefts=True)
    k.set_fiber_num(load=1, matrix=1, reduce=GROUP_WARPS, compute0=GROUP_WARPS, compute1=GROUP_WARPS)
    with k.role("load", window=1, registers=COPY_REGISTERS):
        load(k, memory, has)
    with k.role("matrix", window=1, registers=COPY_REGISTERS):
        Products(k, memory).run(has)
    with k.role("reduce", window=0, registers=REDUCE_REGISTERS):
        reduce(k, problem, memory)
    _compute(k, [(Compute(k, problem, memory, group), Gradients(k, problem, memory, group)) for group in range(GROUPS)])


def _pair(k: Builder, problem: AttentionProblem, has: dict[str, bool]) -> None:
    """The roles of each of two FIBER-threads; those of the first one multiply for both."""
    memory = PairMemory(k, problem)
    k.set_fiber_num(load=1, matrix=1, relay=1, reduce=GROUP_WARPS, compute0=GROUP_WARPS, compute1=GROUP_WARPS)
    with k.role("load", window=1, registers=COPY_REGISTERS):
        Loads(k, memory).run(has)
    with k.role("matrix", window=1, registers=COPY_REGISTERS, leader_only=True):
        PairProducts(k, memory).run(has)
    with k.role("relay", window=1, registers=COPY_REGISTERS):
        relay(k, memory)
    with k.role("reduce", window=0, registers=REDUCE_REGISTERS):
        reduce_pair(k, memory)
    parts = [(PairCompute(k, problem, memory, group), Gradients(k, problem, memory, group)) for group in range(GROUPS)]
    _compute(k, parts)


def _compute(k: Builder, parts: list[tuple[Compute, Gradients]] | list[tuple[PairCompute, Gradients]]) -> None:
    for compute, gradients in parts:
        with k.role(f"compute{compute.group}", window=compute.group, registers=COMPUTE_REGISTERS):
            compute.memory.meet()
            for item in k.work():
                compute.blocks(item)
                gradients.run(item)


def candidates(problem: AttentionProblem, machine: Machine) -> list[LiteralBackward100Config]:
    """Return the one configuration, that of FlashAttention 4. Raises UserError for what cannot be run."""
    today = fa4_backward_config(problem, machine)
    chosen = LiteralBackward100Config(**{f.name: getattr(today, f.name) for f in fields(Fa4BackwardConfig)})
    check_fa4_backward(problem, chosen, machine)
    return [chosen]


def build(
    problem: AttentionProblem, config: LiteralBackward100Config, machine: Machine, params: ProgramParams
) -> TileProgram:
    """Return the tile program. Raises UserError if the configuration does not fit."""
    check_fa4_backward(problem, config, machine)
    items = backward_items(problem, config)
    return attention_bwd_sm100_fiber_literal.build("sm_100", problem, config, items, params=params)


LITERAL = NativeKernel(candidates=candidates, build=build, tile=TILE, needs=("dynamic_parallelism",))
"""For machines without full and empty bits, whether their wefts share registers or not."""
