"""Tiles, order and shared memory of FlashAttention 4 on B200, and its work items."""

from __future__ import annotations

from collections.abc import Iterator

from heddle.errors import UserError
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.raster import Planes, check_tiles, planes
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.machine.spec import Machine

ROWS = 128
"""Rows of a query tile and keys of a block: m of tcgen05.mma, and the lanes of tensor memory."""
PAIR_HEAD_DIM = 128
"""Up to this head size a CTA has two tiles; above it the scores and outputs of two do not fit tensor memory."""
WIDE_KEYS = 64
"""Keys of a block of the kernel for one tile: shared memory holds three such blocks beside Q and O."""
FRAGMENT = 32
"""Columns of scores that are exponentiated, converted and stored together."""
POOL_BYTES = 224 << 10
"""Shared memory that Q, O and the stages of K and V divide."""
BARRIER_BYTES = 1024
"""Shared memory set aside for mbarriers and row factors."""
SECTION_BYTES = 50 << 20
"""K and V of the heads whose tiles are handed out side by side, longest first."""


def fa4_config(problem: AttentionProblem, machine: Machine) -> AttentionConfig:
    """Return the configuration that the open kernel takes: two tiles a CTA; K and V take turns in one ring.

    For large heads it is ours: one tile, whose next scores are computed while the last ones are in softmax.
    """
    tiles = 2 if problem.head_dim <= PAIR_HEAD_DIM else 1
    keys = ROWS if tiles == 2 else WIDE_KEYS
    row_bytes = problem.head_dim * problem.element_bytes
    return AttentionConfig(
        schedule="fa4",
        tile_m=tiles * ROWS,
        tile_n=keys,
        stages=(POOL_BYTES - 2 * tiles * ROWS * row_bytes) // (keys * row_bytes),
        groups=tiles,
        order="launch" if problem.causal else "static",
        packed=problem.group > 1 and ROWS % problem.group == 0,
    )


def shared_bytes(problem: AttentionProblem, config: AttentionConfig) -> int:
    """Return the shared memory of a CTA: Q and O of both tiles, the stages of K and V, barriers."""
    rows = 2 * config.tile_m + config.stages * config.tile_n
    return rows * problem.head_dim * problem.element_bytes + config.tile_m * 4 + BARRIER_BYTES


def check_fa4(problem: AttentionProblem, config: AttentionConfig, machine: Machine) -> None:
    """Raise UserError if the kernel cannot run a problem or a configuration."""
    tiles = 2 if problem.head_dim <= PAIR_HEAD_DIM else 1
    keys = ROWS if tiles == 2 else WIDE_KEYS
    if (config.tile_m, config.tile_n, config.groups, config.cluster) != (tiles * ROWS, keys, tiles, 1):
        raise UserError(
            f"at head_dim {problem.head_dim} FlashAttention 4 works on {tiles} tile{'s' * (tiles - 1)} of {ROWS} rows "
            f"and blocks of {keys} keys; got tile_m = {config.tile_m}, tile_n = {config.tile_n}, groups = "
            f"{config.groups}, cluster = {config.cluster}",
            hint=f"tile_m={tiles * ROWS} and tile_n={keys}; stages may be changed",
        )
    if config.stages < 2:
        raise UserError(f"K and V take turns in one ring of 2 stages or more, got {config.stages}")
    if config.exp_period % 2 or not 2 <= config.exp_period <= FRAGMENT or config.exp_share % 2:
        raise UserError(
            f"exponentials are made in pairs: exp_period must be even and up to {FRAGMENT}, exp_share even; got "
            f"{config.exp_period} and {config.exp_share}"
        )
    if not 0 <= config.exp_share <= config.exp_period or config.rescaled < 0:
        raise UserError(
            f"exp_share must be from 0 to exp_period and rescaled at least 0; got {config.exp_share} of "
            f"{config.exp_period} and {config.rescaled}"
        )


def tiles(problem: AttentionProblem, config: AttentionConfig) -> Iterator[tuple[int, int]]:
    """Yield (plane of Q, first row) of what a CTA takes, in the order in which they are handed out.

    Static: plane by plane. Launched one by one (causal): sections of heads whose K and V fit in L2, and inside of each
    the longest tiles of all its heads first.
    """
    layout = planes(problem, config)
    check_tiles(problem, config, config.tile_m)
    blocks = ceil_div(layout.rows, config.tile_m)
    section = layout.count if config.order == "static" else _section(problem, config)
    for first in range(0, layout.count, section):
        inside = range(first, min(first + section, layout.count))
        if config.order == "static":
            yield from ((plane, block * config.tile_m) for plane in inside for block in range(blocks))
        else:
            yield from ((plane, block * config.tile_m) for block in reversed(range(blocks)) for plane in inside)


def _section(problem: AttentionProblem, config: AttentionConfig) -> int:
    """Planes of a section: a power of two of key and value heads."""
    head_bytes = 2 * problem.seqlen_kv * problem.head_dim * problem.element_bytes
    heads = 1 << max(0, (SECTION_BYTES // head_bytes).bit_length() - 1)
    return heads if config.packed else heads * problem.group


def work_items(problem: AttentionProblem, config: AttentionConfig) -> dict[str, list[int]]:
    """Return the work items in order, one list an attribute.

    q_plane, kv_plane, row: the tiles of a CTA; last: first row of the last block of K and V that it sees; more: blocks
    after that one (only: none), of which `masked` need the causal mask, then `rescaled` and `plain` do not.
    """
    layout = planes(problem, config)
    names = ("q_plane", "kv_plane", "row", "last", "more", "only", "masked", "rescaled", "plain")
    items: dict[str, list[int]] = {name: [] for name in names}
    for plane, row in tiles(problem, config):
        seen = layout.visible(min(row + config.tile_m, layout.rows) - 1)
        more = max(ceil_div(seen, config.tile_n), 1) - 1
        whole = layout.visible(row) // config.tile_n  # blocks that every row sees to their end
        masked = min(max(more - whole, 0), more) if problem.causal else 0
        rescaled = min(config.rescaled, more - masked)
        place = (plane, layout.kv_plane(plane), row, more * config.tile_n)
        counts = (more, int(more == 0), masked, rescaled, more - masked - rescaled)
        for name, value in zip(names, (*place, *counts), strict=True):
            items[name].append(value)
    return items


def late_tiles(problem: AttentionProblem, config: AttentionConfig) -> tuple[bool, ...]:
    """Return for each tile of a CTA whether some row of it sees no key of the CTA's first block.

    Such a row gets its first maximum in a later, masked block, where its tile must be rescaled.
    """
    layout = planes(problem, config)
    return tuple(_is_late(layout, problem, config, tile) for tile in range(config.groups))


def _is_late(layout: Planes, problem: AttentionProblem, config: AttentionConfig, tile: int) -> bool:
    if not problem.causal:
        return False
    for block in range(ceil_div(layout.rows, config.tile_m)):
        row = block * config.tile_m
        seen = layout.visible(min(row + config.tile_m, layout.rows) - 1)
        last = (max(ceil_div(seen, config.tile_n), 1) - 1) * config.tile_n
        first = row + tile * ROWS
        if first < layout.rows and last and layout.visible(first) <= last:
            return True
    return False
