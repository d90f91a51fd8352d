"""Tiles, work and shared memory of the backward pass of FlashAttention 4 on B200."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.kernels._limits import check_item_count
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine.spec import Machine

ROWS = 128
"""Keys of a CTA and queries of a step: m of tcgen05.mma, the lanes of tensor memory and the columns of S^T."""
GROUPS = 2
"""Warp groups that compute; each has every second part of `PART` columns."""
PART = 32
"""Columns that a thread has in registers at a time: of S^T and dP^T, and of dQ on its way out."""
QUERY_STAGES, OUTPUT_STAGES = 2, 1
"""Blocks of Q, and of dO, in shared memory."""
ADDED_STAGES = 2
"""Parts of dQ in shared memory, on their way to global memory."""
HEAD_DIMS = (64, 128)
BARRIER_BYTES = 1024
"""Shared memory set aside for mbarriers and the alignment of the first tile."""
ACCUMULATOR_BYTES = dtype_bytes("fp32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fa4BackwardConfig:
    """How the problem is cut: a CTA keeps `tile_n` keys of a query head and goes through its queries, `tile_m` a step.

    `reduce_registers`, `compute_registers`: what setmaxnreg gives the warps that bring dQ out, and those that compute.
    """

    tile_m: int = ROWS
    tile_n: int = ROWS
    reduce_registers: int = 152
    compute_registers: int = 136

    def label(self) -> str:
        """Return a short name, as in `fa4-bwd 128x128 launch`."""
        return f"fa4-bwd {self.tile_m}x{self.tile_n} launch"


def fa4_backward_config(problem: AttentionProblem, machine: Machine) -> Fa4BackwardConfig:
    """Return the configuration that the open kernel takes for a problem; a mask takes registers from those of dQ."""
    if problem.causal:
        return Fa4BackwardConfig(reduce_registers=136, compute_registers=144)
    return Fa4BackwardConfig()


def staged_columns(problem: AttentionProblem) -> int:
    """Return the columns of dK or dV that a warp group stages: half of them, or a part in fp32 with shared heads."""
    return PART if problem.group > 1 else problem.head_dim // GROUPS


def staged_bytes(problem: AttentionProblem) -> int:
    """Return the bytes of what all groups stage of dK or dV."""
    element_bytes = ACCUMULATOR_BYTES if problem.group > 1 else problem.element_bytes
    return GROUPS * ROWS * staged_columns(problem) * element_bytes


def shared_bytes(problem: AttentionProblem) -> int:
    """Return the shared memory of a CTA: K, V, stages of Q and dO, dS, row statistics, parts of dQ."""
    row_bytes = problem.head_dim * problem.element_bytes
    apart = 0 if staged_bytes(problem) <= ROWS * row_bytes else 2 * staged_bytes(problem)  # dK and dV on their way out
    tiles = (2 + QUERY_STAGES + OUTPUT_STAGES) * ROWS * row_bytes + ROWS * ROWS * problem.element_bytes + apart
    accumulators = (QUERY_STAGES + OUTPUT_STAGES) * ROWS + ADDED_STAGES * ROWS * PART
    return tiles + accumulators * ACCUMULATOR_BYTES + BARRIER_BYTES


def check_fa4_backward(problem: AttentionProblem, config: Fa4BackwardConfig, machine: Machine) -> None:
    """Raise UserError if the kernel cannot run a problem or a configuration."""
    if problem.element_bytes != dtype_bytes("fp16"):
        raise UserError(f"the backward pass takes fp16 and bf16, got {problem.dtype!r}")
    if problem.head_dim not in HEAD_DIMS:
        raise UserError(
            f"the backward pass on {machine.name} has head sizes {', '.join(map(str, HEAD_DIMS))}, "
            f"got {problem.head_dim}",
            hint="the open code has another kernel for head size 256, which is not built here",
        )
    if (config.tile_m, config.tile_n) != (ROWS, ROWS):
        raise UserError(
            f"FlashAttention 4 takes tiles of {ROWS} queries x {ROWS} keys; got {config.tile_m} x {config.tile_n}",
            hint=f"leave out tile_m and tile_n, or set both to {ROWS}",
        )


def backward_items(problem: AttentionProblem, config: Fa4BackwardConfig) -> dict[str, list[int]]:
    """Return the work items, one list an attribute: blocks of keys of a query head, keys fastest.

    q_plane, kv_plane, key: the head and the first key; first: first row of the first block of queries that see the
    keys; blocks, more: how many there are, and without the first (only: none).
    """
    names = ("q_plane", "kv_plane", "key", "first", "blocks", "more", "only")
    items: dict[str, list[int]] = {name: [] for name in names}
    planes = problem.batch * problem.heads_q
    keys, blocks = ceil_div(problem.seqlen_kv, config.tile_n), ceil_div(problem.seqlen_q, config.tile_m)
    check_item_count(f"{config.label()} cuts {planes} heads of {problem.seqlen_kv} keys", planes * keys)
    for plane in range(planes):
        for key in range(0, keys * config.tile_n, config.tile_n):
            first = max(0, key - problem.diagonal) // config.tile_m if problem.causal else 0
            more = blocks - first - 1
            place = (plane, plane // problem.group, key, first * config.tile_m)
            for name, value in zip(names, (*place, more + 1, more, int(more == 0)), strict=True):
                items[name].append(value)
    return items
