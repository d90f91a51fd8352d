"""Tiles, warps and grid order of FlashAttention 2, and the shared memory that it takes.

Known from its sources (github.com/Dao-AILab/flash-attention, csrc/flash_attn/src/flash_fwd_launch_template.h at
01afd16).
"""

from __future__ import annotations

from heddle.errors import UserError
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.raster import work_items
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.machine.spec import Machine

WARP_ROWS = 16
"""Rows of an accumulator of mma.sync (PTX ISA, m16n8k16)."""
DEPTH = 16
"""Keys or elements of a head that one mma.sync sums over."""
TILES = {64: (128, 128), 128: (128, 64), 256: (128, 64)}
"""Rows of Q and keys of a block, by head size."""
SMALL_TILE = (64, 64)
"""Tile of head size 256 where two CTAs of it fit an SM."""
WARP_TILE_ROWS = {64: 32, 128: 32, 256: 16}
"""Rows of Q that a warp takes, by head size: as many as leave room for O in its registers."""


def fa2_config(problem: AttentionProblem, machine: Machine) -> AttentionConfig:
    """Return the configuration that the open kernel takes; `groups` counts warps, each with its own rows."""
    tile_m, tile_n = TILES[problem.head_dim]
    small = _bytes(problem, *SMALL_TILE)
    if problem.head_dim == 256 and 2 * small <= machine.shared_memory_bytes:
        tile_m, tile_n = SMALL_TILE
    return AttentionConfig(
        schedule="fa2",
        tile_m=tile_m,
        tile_n=tile_n,
        stages=1,
        groups=tile_m // WARP_TILE_ROWS[problem.head_dim],
        order="launch",
    )


def shared_bytes(problem: AttentionProblem, config: AttentionConfig) -> int:
    """Return the shared memory of a CTA: Q, which O leaves through, one block of K and one of V."""
    return _bytes(problem, config.tile_m, config.tile_n)


def _bytes(problem: AttentionProblem, tile_m: int, tile_n: int) -> int:
    return (tile_m + 2 * tile_n) * problem.head_dim * problem.element_bytes


def check_fa2(problem: AttentionProblem, config: AttentionConfig, machine: Machine) -> None:
    """Raise UserError if a configuration breaks a rule of the kernel."""
    if config.tile_m % (WARP_ROWS * config.groups):
        raise UserError(
            f"tile_m is a multiple of {WARP_ROWS} rows for each of {config.groups} warps; got {config.tile_m}"
        )
    if config.tile_n % DEPTH:
        raise UserError(f"tile_n is a multiple of {DEPTH}, got {config.tile_n}")
    if config.stages != 1:
        raise UserError(f"fa2 keeps one block of K and of V in shared memory; got stages = {config.stages}")


def fa2_work_items(problem: AttentionProblem, config: AttentionConfig) -> dict[str, list[int]]:
    """Return one work item a CTA in the order of its grid: rows fastest, then sequences, then heads.

    Causal tiles mask as many of their last blocks as they have rows, one more at lengths that blocks do not divide;
    edge: first row of the last of these.
    """
    items = work_items(problem, config)
    blocks = ceil_div(problem.seqlen_q, config.tile_m)
    order = [
        (sequence * problem.heads_q + head) * blocks + block
        for head in range(problem.heads_q)
        for sequence in range(problem.batch)
        for block in range(blocks)
    ]
    uneven = problem.seqlen_q % config.tile_m or problem.seqlen_kv % config.tile_n
    steps = ceil_div(config.tile_m, config.tile_n) + bool(uneven) if problem.causal else 1
    items["masked"] = [min(more, steps - 1) for more in items["more"]]
    items["plain"] = [more - masked for more, masked in zip(items["more"], items["masked"], strict=True)]
    items["edge"] = [last - masked * config.tile_n for last, masked in zip(items["last"], items["masked"], strict=True)]
    return {name: [column[i] for i in order] for name, column in items.items()}
