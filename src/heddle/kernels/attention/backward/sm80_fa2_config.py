"""Tiles, warps and grid order of the backward pass of FlashAttention 2, and the shared memory that it takes.

Known from its sources (github.com/Dao-AILab/flash-attention, csrc/flash_attn/src/flash_bwd_launch_template.h at
073afd5, flash_bwd_kernel.h at 04da83f).
"""

from __future__ import annotations

from heddle.errors import UserError
from heddle.kernels._limits import check_item_count
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.backward.shape import BackwardConfig
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine.spec import Machine

ATOM_ROWS, ATOM_COLS = 16, 8
"""Rows and columns of an accumulator of mma.sync (PTX ISA, m16n8k16)."""
DEPTH = 16
"""What one mma.sync sums over."""
CONFIGS = {
    64: BackwardConfig(tile_m=128, tile_n=128, stages=2, warps=8, scores_rows=4, keys_rows=4, queries_rows=4),
    128: BackwardConfig(tile_m=64, tile_n=128, stages=2, warps=8, scores_rows=2, keys_rows=4, queries_rows=2),
    256: BackwardConfig(tile_m=64, tile_n=64, stages=1, warps=8, scores_rows=4, keys_rows=2, queries_rows=2),
}
"""By head size, on a GPU with 144 to 175 KB of shared memory for a CTA."""


def bwd_config(problem: AttentionProblem, machine: Machine) -> BackwardConfig:
    """Return the configuration that the open kernel takes."""
    return CONFIGS[problem.head_dim]


def shared_bytes(problem: AttentionProblem, config: BackwardConfig) -> int:
    """Return the shared memory of a CTA: blocks of Q and one of dO, K and V, P and dS."""
    rows = (config.stages + 1) * config.tile_m + 2 * config.tile_n
    return (rows * problem.head_dim + 2 * config.tile_m * config.tile_n) * problem.element_bytes


def check_bwd(problem: AttentionProblem, config: BackwardConfig, machine: Machine) -> None:
    """Raise UserError if a configuration breaks a rule of the kernel or does not fit the machine."""
    if config.warps not in (4, 8) or config.stages not in (1, 2):
        raise UserError(f"a CTA has 4 or 8 warps and 1 or 2 stages of Q; got {config.warps} and {config.stages}")
    m, n, d = config.tile_m, config.tile_n, problem.head_dim
    for name, rows, cols in (("scores_rows", m, n), ("keys_rows", n, d), ("queries_rows", m, d)):
        along = getattr(config, name)
        if along < 1 or config.warps % along:
            raise UserError(f"{name} must be a divisor of {config.warps} warps, got {along}")
        across = config.warps // along
        if min(rows, cols) < DEPTH or rows % (ATOM_ROWS * along) or cols % (2 * ATOM_COLS * across):
            raise UserError(
                f"{rows} x {cols} do not divide into 16 x 16 among {along} x {across} warps ({name} = {along})"
            )
    needed = shared_bytes(problem, config)
    if needed > machine.shared_memory_bytes_per_cta:
        raise UserError(
            f"{config.label()} takes {needed} bytes of shared memory; a CTA of {machine.name} has "
            f"{machine.shared_memory_bytes_per_cta}",
            hint="use one stage or a smaller tile",
        )


def bwd_work_items(problem: AttentionProblem, config: BackwardConfig) -> dict[str, list[int]]:
    """Return one work item a CTA in the order of its grid: keys fastest, then sequences, then heads.

    plane, kv_plane, col: its keys; first: row of the last block of queries, with which it begins. It goes down, `plain`
    blocks without masks, then from row `edge` on blocks with masks, the last of all blocks being that at row `end`.
    loop_plain, loop_masked: blocks of each kind but the very last, which is masked (last_masked) or not (last_plain).
    """
    names = (
        "plane",
        "kv_plane",
        "col",
        "first",
        "edge",
        "end",
        "loop_plain",
        "loop_masked",
        "last_plain",
        "last_masked",
    )
    items: dict[str, list[int]] = {name: [] for name in names}
    blocks = ceil_div(problem.seqlen_kv, config.tile_n)
    planes = [sequence * problem.heads_q + head for head in range(problem.heads_q) for sequence in range(problem.batch)]
    check_item_count(f"{config.label()} cuts {len(planes)} heads of {problem.seqlen_kv} keys", len(planes) * blocks)
    for plane in planes:
        for block in range(blocks):
            begin, masked, total = _blocks(problem, config, block)
            last = begin + total - 1
            row = {
                "plane": plane,
                "kv_plane": plane // problem.group,
                "col": block * config.tile_n,
                "first": last * config.tile_m,
                "edge": (last - (total - masked)) * config.tile_m,
                "end": begin * config.tile_m,
                "loop_plain": total - masked - (masked == 0),
                "loop_masked": max(masked - 1, 0),
                "last_plain": int(masked == 0),
                "last_masked": int(masked > 0),
            }
            for name in names:
                items[name].append(row[name])
    return items


def _blocks(problem: AttentionProblem, config: BackwardConfig, block: int) -> tuple[int, int, int]:
    """Return the first block of queries that sees a block of keys, how many need masks, and how many there are."""
    count = ceil_div(problem.seqlen_q, config.tile_m)
    end = (block + 1) * config.tile_n
    uneven = problem.seqlen_q % config.tile_m or problem.seqlen_kv % config.tile_n or problem.head_dim > 128
    begin = max(0, (block * config.tile_n - problem.diagonal) // config.tile_m) if problem.causal else 0
    total = count - begin
    if uneven and end >= problem.seqlen_kv:
        return begin, total, total
    masked = ceil_div(end - problem.diagonal, config.tile_m) - begin if problem.causal else 0
    return begin, min(max(masked, 0), total), total
