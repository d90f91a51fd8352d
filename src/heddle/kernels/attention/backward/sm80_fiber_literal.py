"""Attention backward on A100 with wefts that share no registers: FlashAttention 2 in two roles of four wefts.

All eight warps of FlashAttention 2 do the same; here a role has the warps of one half of the keys. It makes S, dP, dK
and dV of its keys and half of the columns of dQ. P and dS pass through shared memory, named barriers order all, and
mma.sync multiplies, as today. No weft reads a register of another, with or without registers that a subpartition
shares.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels.attention.backward.shape import BackwardConfig, backward_flops
from heddle.kernels.attention.backward.sm80_fa2 import Memory, Tile, blocks
from heddle.kernels.attention.backward.sm80_fa2_config import CONFIGS, bwd_config, bwd_work_items, check_bwd
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, kernel
from heddle.machine.spec import Machine

ROLES = 2
BEGIN_REGISTERS = 4
"""Of the weft that a FIBER-thread starts with."""
WORK_REGISTERS = 248
"""Of a weft that multiplies: what is left of its window."""
TILE = (
    TileParameter("stages", int, "blocks of Q in shared memory", "1, 2"),
    TileParameter("tile_m", int, "queries of one step", "multiples of 16 for each weft along them"),
)
"""What the fields of `LiteralBackward80Config` may be, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralBackward80Config(BackwardConfig):
    """The configuration of FlashAttention 2; wefts along rows and columns are those of both roles together."""

    def label(self) -> str:
        """Return a short name, as in `fiber-fa2 64x128 w8 s2`."""
        return f"fiber-{BackwardConfig.label(self)}"


@kernel
def attention_bwd_sm80_fiber_literal(
    k: Builder, problem: AttentionProblem, config: LiteralBackward80Config, items: dict[str, list[int]]
) -> None:
    """Two roles that do the same for half of the keys each."""
    k.flops = backward_flops(problem)
    k.work_items(items, clusters=len(items["col"]), schedule="launch")
    memory = Memory(k, problem, config)
    parts = {f"half{part}": Tile(k, problem, config, memory, part, ROLES) for part in range(ROLES)}
    k.set_fiber_num(begin=1, **dict.fromkeys(parts, config.warps // ROLES))
    with k.role("begin", registers=BEGIN_REGISTERS):  # the weft that a FIBER-thread starts with
        pass
    for part, (name, own) in enumerate(parts.items()):
        with k.role(name, window=part, registers=WORK_REGISTERS):
            blocks(k, config, items, own)


def candidates(problem: AttentionProblem, machine: Machine) -> list[LiteralBackward80Config]:
    """Return the one configuration, that of FlashAttention 2. Raises UserError for what cannot be run."""
    if problem.head_dim not in CONFIGS:
        raise UserError(f"the backward pass of sm_80 has head sizes {', '.join(map(str, CONFIGS))}")
    today = bwd_config(problem, machine)
    return [LiteralBackward80Config(**{f.name: getattr(today, f.name) for f in fields(BackwardConfig)})]


def build(
    problem: AttentionProblem, config: LiteralBackward80Config, machine: Machine, params: ProgramParams
) -> TileProgram:
    """Return the tile program. Raises UserError if the configuration does not fit."""
    check_bwd(problem, config, machine)
    items = bwd_work_items(problem, config)
    return attention_bwd_sm80_fiber_literal.build("sm_80", problem, config, items, params=params)


LITERAL = NativeKernel(candidates=candidates, build=build, tile=TILE, needs=("dynamic_parallelism",))
"""For machines without full and empty bits, whether their wefts share registers or not."""
