"""Tiles, warp groups, clusters and order of FlashAttention 3 on H100, and the shared memory that they take."""

from __future__ import annotations

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.machine.spec import Machine

GROUP_ROWS = 64
"""Rows of a warp group: m of a wgmma (PTX ISA)."""
STAGES = 2
REGISTERS = {2: (24, 240), 3: (32, 160)}
"""What setmaxnreg gives the producer and the consumers, by number of groups."""
REGISTERS_FIRST_FP8 = 40, 232
"""The same in the first release with 8-bit types."""
PACK_GAIN = 0.9
"""Query heads are packed when the share of useful rows without packing is below this part of that with packing."""
BARRIER_BYTES = 1024
"""Shared memory set aside for mbarriers and the alignment of the first tile."""
TURNS_HEAD_DIM = 128
"""Of 16-bit types up to this head size, of 8-bit ones from it on, the groups take turns at the matrix unit."""
TRANSPOSING_WARPS = 4
"""Warps of the producer where V has to be transposed."""
PIECE_KEYS = 32
"""Keys that a warp transposes in one step."""


def fa3_config(problem: AttentionProblem, machine: Machine) -> AttentionConfig:
    """Return the configuration that the open kernel takes for a problem."""
    tile_m, tile_n = fa3_tile(problem)
    packed = _packs(problem, tile_m)
    rows = problem.seqlen_q * (problem.group if packed else 1)
    pairs = (
        problem.element_bytes > 1
        and not problem.causal
        and not packed
        and problem.head_dim >= TURNS_HEAD_DIM
        and ceil_div(rows, tile_m) % 2 == 0
        and machine.max_cluster_size > 1
    )
    return AttentionConfig(
        schedule="fa3",
        tile_m=tile_m,
        tile_n=tile_n,
        stages=STAGES,
        groups=tile_m // GROUP_ROWS,
        order="dynamic" if problem.causal else "static",
        cluster=2 if pairs else 1,
        packed=packed,
        p_shared=shares_weights(problem),
    )


def shares_weights(problem: AttentionProblem) -> bool:
    """Return whether the second product reads P from shared memory."""
    return problem.element_bytes > 1 and problem.head_dim == 64 and not problem.causal


def fa3_tile(problem: AttentionProblem) -> tuple[int, int]:
    """Return rows of Q and keys of a block.

    8-bit types of head size 256: half the keys of the open kernel, as O has memory of its own here.
    """
    if problem.element_bytes == 1:
        return {64: (192, 160), 128: (128, 224), 256: (128, 64)}[problem.head_dim]
    tiles = {64: (192, 128 if problem.causal else 192), 128: (128, 128 if problem.causal else 176), 256: (128, 80)}
    return tiles[problem.head_dim]


def _packs(problem: AttentionProblem, tile_m: int) -> bool:
    """Whether packed query heads fill the rows of tiles clearly better than one head's rows do."""

    def filled(rows: int) -> float:
        return rows / (ceil_div(rows, tile_m) * tile_m)

    return filled(problem.seqlen_q) < PACK_GAIN * filled(problem.seqlen_q * problem.group)


def takes_turns(problem: AttentionProblem, config: AttentionConfig) -> bool:
    """Return whether the warp groups take turns at the matrix unit."""
    narrow, wide = problem.head_dim <= TURNS_HEAD_DIM, problem.head_dim >= TURNS_HEAD_DIM
    return (wide if transposes(problem) else narrow) and config.groups > 1


def transposes(problem: AttentionProblem) -> bool:
    """Return whether the producer transposes V: wgmma reads operands of 8-bit types only along the sum."""
    return problem.element_bytes == 1


def register_counts(problem: AttentionProblem, config: AttentionConfig) -> tuple[int, int]:
    """Return the registers of a thread of the producer and of the consumers."""
    if config.release == 1 and transposes(problem):
        return REGISTERS_FIRST_FP8
    return REGISTERS[config.groups]


def weight_exponent(problem: AttentionProblem) -> int:
    """Return the power of two by which exponentials are scaled to use the range of P's type (fp8_e4m3: up to 448)."""
    return 8 if transposes(problem) else 0


def rescales_early(problem: AttentionProblem) -> bool:
    """Return whether O is rescaled before the second product instead of at the end of the softmax."""
    return problem.head_dim > TURNS_HEAD_DIM and not transposes(problem)


def shared_bytes(problem: AttentionProblem, config: AttentionConfig, *, staged: bool = True) -> int:
    """Return the shared memory of a CTA: Q, stages of K and V (O goes through V's), P where it is shared, barriers.

    Where V is transposed, its stages are there twice, and O, if it is `staged` at all, has memory of its own: it is
    wider than V.
    """
    copies = 3 if transposes(problem) else 2
    rows = config.tile_m + copies * config.stages * config.tile_n
    elements = rows * problem.head_dim + (config.tile_m * config.tile_n if config.p_shared else 0)
    own_output = staged and transposes(problem) and config.release != 1  # there O lies in the memory of V transposed
    output = config.tile_m * problem.head_dim * dtype_bytes(problem.output_dtype) if own_output else 0
    return elements * problem.element_bytes + output + BARRIER_BYTES


def check_fa3(problem: AttentionProblem, config: AttentionConfig, machine: Machine) -> None:
    """Raise UserError if a configuration breaks a rule of the kernel."""
    if config.tile_m != config.groups * GROUP_ROWS or not 2 <= config.groups <= 3:
        raise UserError(f"tile_m is {GROUP_ROWS} rows for each of 2 or 3 warp groups; got {config.tile_m}")
    if config.tile_n % 16 or not GROUP_ROWS <= config.tile_n <= 256:
        raise UserError(f"tile_n is a multiple of 16 from {GROUP_ROWS} to 256, got {config.tile_n}")
    if problem.causal and config.cluster > 1:
        raise UserError(
            f"causal tiles have a number of blocks each: a cluster of {config.cluster} CTAs cannot load them together",
            hint="leave cluster out, or use cluster=1",
        )
    if config.release == 1:
        _check_first(problem, config)
    if transposes(problem):
        if config.early_release:
            raise UserError(
                "early_release is not possible where V is transposed: warps read V, not the matrix unit alone"
            )
        if config.tile_n % PIECE_KEYS:
            raise UserError(f"V is transposed in pieces of {PIECE_KEYS} keys; tile_n = {config.tile_n} is no multiple")
        return
    if config.tile_n // GROUP_ROWS * config.stages < config.groups:
        raise UserError(
            f"the output of {config.groups} warp groups goes through the memory of V, which has room for "
            f"{config.tile_n // GROUP_ROWS * config.stages} in {config.stages} stages of {config.tile_n} rows"
        )


def _check_first(problem: AttentionProblem, config: AttentionConfig) -> None:
    """Raise UserError on what of the first release is not built."""
    if config.early_release or config.packed or config.p_shared:
        raise UserError(
            "release = 1 has no early_release, packed heads or shared P",
            hint=f"this problem would run as {config.label()}; query heads are packed where that saves tiles, not with "
            "as many heads of keys",
        )
    if transposes(problem) and (problem.head_dim != TURNS_HEAD_DIM or problem.causal):
        raise UserError(
            f"release = 1 with 8-bit types is there for full attention of head size {TURNS_HEAD_DIM}",
            hint="leave release at 0, or take a 16-bit type",
        )
