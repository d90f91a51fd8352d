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
PAIR = 2
"""CTAs of a pair."""
HALF = ROWS // PAIR
"""Queries of a block whose dQ a CTA of a pair has."""
PAIR_ADDED_COLUMNS, PAIR_ADDED_STAGES = 8, 4
"""Columns of dQ that a thread of a pair's CTA brings out at a time, and such parts in shared memory."""
HEAD_DIMS = (64, 128)
PAIR_HEAD_DIM = 128
"""The head size for which the open kernel takes pairs."""
BARRIER_BYTES = 1024
"""Shared memory set aside for mbarriers and the alignment of the first tile."""
ACCUMULATOR_BYTES = dtype_bytes("fp32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fa4BackwardConfig:
    """How the problem is cut: a CTA keeps `tile_n` keys of a query head and goes through its queries, `tile_m` a step.

    `pairs`: 1 if two CTAs do so together, each with half of the second operands, and of the queries of dQ.
    `reduce_registers`, `compute_registers`: what setmaxnreg gives the warps that bring dQ out, and those that compute;
    0 is the open kernel's choice.
    """

    tile_m: int = ROWS
    tile_n: int = ROWS
    pairs: int = 0
    reduce_registers: int = 0
    compute_registers: int = 0

    def label(self) -> str:
        """Return a short name, as in `fa4-bwd 128x128 launch`."""
        return f"fa4-bwd {self.tile_m}x{self.tile_n}{' pairs' if self.pairs else ''} launch"

    @property
    def keys(self) -> int:
        """Keys of an item."""
        return self.tile_n * (PAIR if self.pairs else 1)


def fa4_backward_config(problem: AttentionProblem, machine: Machine) -> Fa4BackwardConfig:
    """Return the configuration that the open kernel takes for a problem; `FA_DISABLE_2CTA=1` is pairs = 0."""
    return Fa4BackwardConfig(pairs=int(problem.head_dim == PAIR_HEAD_DIM))


def registers(problem: AttentionProblem, config: Fa4BackwardConfig) -> tuple[int, int]:
    """Return the registers a thread of the warps that bring dQ out, and of those that compute.

    With one CTA a mask takes registers from those of dQ.
    """
    chosen = (136, 144) if problem.causal else (152, 136)
    reduce, compute = (136, 136) if config.pairs else chosen
    return config.reduce_registers or reduce, config.compute_registers or compute


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


def pair_shared_bytes(problem: AttentionProblem) -> int:
    """Return the shared memory of a CTA of a pair.

    K and V; half of K for both; halves of Q and dO, twice; dS and what is sent of it; row statistics, parts of dQ.
    """
    row_bytes = problem.head_dim * problem.element_bytes
    tiles = (2 + 1) * ROWS * row_bytes + 2 * 2 * HALF * row_bytes + (PAIR + 1) * ROWS * HALF * problem.element_bytes
    accumulators = 2 * ROWS + PAIR_ADDED_STAGES * ROWS * PAIR_ADDED_COLUMNS
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
    if config.pairs not in (0, 1) or (config.pairs and problem.head_dim != PAIR_HEAD_DIM):
        raise UserError(
            f"pairs = {config.pairs} at head size {problem.head_dim}; FlashAttention 4 takes pairs of CTAs "
            f"(pairs = 1) at head size {PAIR_HEAD_DIM}, and single ones (pairs = 0) at every one",
            hint="set pairs=0",
        )
    if (config.tile_m, config.tile_n) != (ROWS, ROWS):
        raise UserError(
            f"FlashAttention 4 takes tiles of {ROWS} queries x {ROWS} keys; got {config.tile_m} x {config.tile_n}",
            hint=f"leave out tile_m and tile_n, or set both to {ROWS}",
        )
    needed = pair_shared_bytes(problem) if config.pairs else shared_bytes(problem)
    if needed > machine.shared_memory_bytes_per_cta:
        raise UserError(
            f"{config.label()} takes {needed} bytes of shared memory at head size {problem.head_dim}; a CTA of "
            f"{machine.name} has {machine.shared_memory_bytes_per_cta}",
            hint="take a machine with more, or a smaller head size",
        )


def backward_items(problem: AttentionProblem, config: Fa4BackwardConfig) -> dict[str, list[int]]:
    """Return the work items, one list an attribute: blocks of keys of a query head, keys fastest.

    q_plane, kv_plane, key: the head and the first key; first: first row of the first block of queries that see the
    keys; blocks, more: how many there are, and without the first (only: none); last: first row of the last one.
    """
    names = ("q_plane", "kv_plane", "key", "first", "blocks", "more", "only", "last")
    items: dict[str, list[int]] = {name: [] for name in names}
    planes = problem.batch * problem.heads_q
    keys, blocks = ceil_div(problem.seqlen_kv, config.keys), ceil_div(problem.seqlen_q, config.tile_m)
    check_item_count(f"{config.label()} cuts {planes} heads of {problem.seqlen_kv} keys", planes * keys)
    for plane in range(planes):
        for key in range(0, keys * config.keys, config.keys):
            first = max(0, key - problem.diagonal) // config.tile_m if problem.causal else 0
            more, last = blocks - first - 1, (blocks - 1) * config.tile_m
            place = (plane, plane // problem.group, key, first * config.tile_m)
            for name, value in zip(names, (*place, more + 1, more, int(more == 0), last), strict=True):
                items[name].append(value)
    return items
