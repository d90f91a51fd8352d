"""What the attention of A100 runs on machines without full and empty bits: configurations and their rules."""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels.attention.forward.sm80_fiber_config import GROUP
from heddle.kernels.attention.forward.sm80_fiber_roles import attention_sm80_fiber_roles
from heddle.kernels.attention.forward.sm80_fiber_roles_config import (
    STAGES,
    WEFT_TILES,
    Roles80Config,
    roles_items,
    shared_bytes,
    weft_rows,
)
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine.spec import Machine

DTYPES = ("fp16", "bf16")
GROUPS = 2
TILE = (
    TileParameter("tile_n", int, "keys of a block", "a multiple of 16, as registers and shared memory hold"),
    TileParameter("turns", int, "groups take turns to multiply (1), or multiply when they can (0)", "0, 1"),
)
"""What the fields of `Roles80Config` may be, for people."""


def candidates(problem: AttentionProblem, machine: Machine) -> list[Roles80Config]:
    """Return configurations worth trying, the one that is taken first. Raises UserError for what cannot be run."""
    if problem.dtype not in DTYPES or problem.head_dim not in WEFT_TILES:
        raise UserError(
            f"the attention of sm_80 for wefts takes {', '.join(DTYPES)} and head sizes "
            f"{', '.join(map(str, WEFT_TILES))}; got {problem.dtype!r} and {problem.head_dim}"
        )
    rows, keys = WEFT_TILES[problem.head_dim]
    first = Roles80Config(
        schedule="fiber",
        tile_m=GROUPS * GROUP * rows,
        tile_n=keys,
        stages=STAGES,
        groups=GROUPS,
        order="dynamic" if problem.causal else "static",
    )
    return [replace(first, turns=0), first]


def build(problem: AttentionProblem, config: Roles80Config, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    candidates(problem, machine)
    needed, rows = shared_bytes(problem, config), WEFT_TILES[problem.head_dim][0]
    if needed > machine.shared_memory_bytes_per_cta:
        raise UserError(
            f"{config.label()} takes {needed} bytes of shared memory; a FIBER-thread has "
            f"{machine.shared_memory_bytes_per_cta}",
            hint="use fewer keys",
        )
    if (config.groups, config.stages, weft_rows(config)) != (GROUPS, STAGES, rows) or config.tile_n % 16:
        raise UserError(
            f"{GROUPS} groups of wefts with {rows} rows each, {STAGES} stages and multiples of 16 keys; got "
            f"{config.groups}, {weft_rows(config)}, {config.stages} and {config.tile_n}"
        )
    if config.turns not in (0, 1):
        raise UserError(f"turns must be 0 or 1, got {config.turns}")
    items = roles_items(problem, config)
    clusters = min(len(items["row"]), machine.sms)
    return attention_sm80_fiber_roles.build("sm_80", problem, config, items, clusters, params=params)


ROLES = NativeKernel(candidates=candidates, build=build, tile=TILE, needs=("dynamic_parallelism",))
"""The attention of A100 for machines without bits; its wefts share no registers."""
