"""Checks GEMM parameters and configurations against the rules of a machine."""

from __future__ import annotations

from heddle.errors import UnsupportedError, UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile_math import GATE_COLUMNS
from heddle.kernels._limits import check_item_count
from heddle.kernels._rounding import ceil_div
from heddle.kernels._warp import LANES
from heddle.kernels.gemm.epilogue import FRAGMENT_PAIR_COLUMNS, TMA_ALIGNMENT_BYTES, staging_bytes, store_columns
from heddle.kernels.gemm.raster import item_count
from heddle.kernels.gemm.rope import check_heads, check_tile
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.kernels.gemm.sm80 import LANE_BYTES, lane_bytes, thread_registers
from heddle.machine.spec import Machine

DTYPES = {
    "sm_80": ("fp16", "bf16"),
    "sm_90": ("fp16", "bf16", "fp8_e4m3"),
    "sm_100": ("fp16", "bf16", "fp8_e4m3"),
}
"""Operand types of the matrix instructions that the kernels use."""
EPILOGUE_DTYPES = ("fp16", "bf16")
SCHEDULES = {"sm_80": ("multistage",), "sm_90": ("cooperative", "pingpong"), "sm_100": ("tcgen05",)}
SM80_TILE_K = (32, 64, 128, 256)
"""A row of a stage is copied by a whole number of lanes that divides a warp, and holds two steps of mma.m16n8k16."""
INSTRUCTION_K_BYTES = 32
"""Bytes of a row of A and B that one wgmma or tcgen05.mma sums over (PTX ISA)."""
SWIZZLE_BYTES = 128
"""Longest row of a tile that a bulk copy with the 128-byte swizzle writes (PTX ISA, tensor copies)."""
OTHER_REGISTERS = 64
"""Addresses, counters and epilogue temporaries of a thread beside its accumulators."""
BARRIER_BYTES = 1024
"""Shared memory set aside for mbarriers and the alignment of the first tile."""
ACCUMULATOR_LANES = 128
"""Lanes of tensor memory, the rows of one accumulator; a column is 32 bits (PTX ISA, tensor memory)."""
ACCUMULATOR_STAGES = 2


def check_epilogue(problem: GemmProblem) -> None:
    """Raise UserError if the epilogue does not fit the problem, on whatever machine."""
    if problem.epilogue != "none" and problem.dtype not in EPILOGUE_DTYPES:
        raise UserError(
            f"{problem.epilogue} makes {', '.join(EPILOGUE_DTYPES)}: such products need scales in {problem.dtype}"
        )
    check_heads(problem)
    if problem.gated and problem.n % (2 * GATE_COLUMNS):
        raise UserError(
            f"silu_mul takes rows of B in groups of {2 * GATE_COLUMNS}, {GATE_COLUMNS} gates and their factors; "
            f"n = {problem.n} is no multiple"
        )


def check_problem(problem: GemmProblem, machine: Machine) -> None:
    """Raise UserError if the machine's kernel cannot run the problem; the message names the rule."""
    allowed = DTYPES[machine.architecture]
    if problem.dtype not in allowed:
        raise UserError(
            f"gemm on {machine.name} ({machine.architecture}) multiplies {', '.join(allowed)}; got {problem.dtype!r}"
        )
    if machine.architecture == "sm_80":
        lane_bytes(problem)
        return
    row_bytes = problem.k * problem.element_bytes
    if row_bytes % TMA_ALIGNMENT_BYTES:
        step = TMA_ALIGNMENT_BYTES // problem.element_bytes
        raise UserError(
            f"rows of A and B have {row_bytes} bytes; bulk copies (TMA) need rows of a multiple of "
            f"{TMA_ALIGNMENT_BYTES} bytes",
            hint=f"pad k = {problem.k} to {ceil_div(problem.k, step) * step}",
        )


def shared_bytes(problem: GemmProblem, config: GemmConfig) -> int:
    """Return the shared memory of a CTA: stages of A and B, staging of C, barriers."""
    if config.schedule == "multistage":
        return _stage_bytes(problem, config) * config.stages
    outputs = 2 if config.schedule == "pingpong" else 1
    return _stage_bytes(problem, config) * config.stages + outputs * staging_bytes(problem, config) + BARRIER_BYTES


def _stage_bytes(problem: GemmProblem, config: GemmConfig) -> int:
    b_rows = config.tile_n // (config.cluster if config.schedule == "tcgen05" else 1)
    return (config.tile_m + b_rows) * config.tile_k * dtype_bytes(problem.dtype)


def stages_that_fit(problem: GemmProblem, config: GemmConfig, machine: Machine) -> int:
    """Return how many stages of the tile a CTA's shared memory holds; may be less than the two that a kernel needs."""
    fixed = shared_bytes(problem, config) - _stage_bytes(problem, config) * config.stages
    return (machine.shared_memory_bytes_per_cta - fixed) // _stage_bytes(problem, config)


def check_sizes(config: GemmConfig) -> None:
    """Raise UserError unless every size of a configuration is at least 1 and `warps` are rows x columns."""
    for name in ("tile_m", "tile_n", "tile_k", "stages", "cluster", "split_k"):
        if getattr(config, name) < 1:
            raise UserError(f"{name} must be at least 1, got {getattr(config, name)}")
    if len(config.warps) != 2 or min(config.warps) < 1:
        given = "x".join(str(count) for count in config.warps)
        raise UserError(f"warps must be rows x columns of at least 1 x 1, got {given}", hint="for example warps=4x2")
    if config.schedule != "multistage" and config.warps != (1, 1):
        raise UserError(f"the warps of a {config.schedule} kernel are given by its schedule", hint="leave warps out")
    if config.cluster_side not in ("m", "n"):
        raise UserError(f"cluster_side must be m or n, got {config.cluster_side!r}")


def check_config(problem: GemmProblem, config: GemmConfig, machine: Machine) -> None:
    """Raise UserError if a configuration breaks a rule of the machine or the kernel."""
    check_sizes(config)
    schedules = SCHEDULES[machine.architecture]
    if config.schedule not in schedules:
        raise UserError(f"gemm on {machine.name} runs the schedules {', '.join(schedules)}; got {config.schedule!r}")
    {"sm_80": _check_sm80, "sm_90": _check_sm90, "sm_100": _check_sm100}[machine.architecture](problem, config, machine)
    if problem.gated and config.schedule != "multistage" and config.tile_n % (2 * FRAGMENT_PAIR_COLUMNS):
        raise UserError(
            f"silu_mul stores {FRAGMENT_PAIR_COLUMNS} columns of C at a time: tile_n is a multiple of "
            f"{2 * FRAGMENT_PAIR_COLUMNS}, got {config.tile_n}"
        )
    check_tile(problem, config.tile_n, config.cluster_n, wide=config.schedule != "multistage")
    k_blocks = ceil_div(problem.k, config.tile_k)
    if not 1 <= config.split_k <= k_blocks:
        raise UserError(f"split_k must lie in 1..{k_blocks} for k = {problem.k}, got {config.split_k}")
    if config.split_k > 1 and config.schedule == "multistage" and k_blocks // config.split_k < config.stages:
        raise UserError(
            f"split_k = {config.split_k} leaves {k_blocks // config.split_k} steps of {config.tile_k} to a slice; on "
            f"{machine.name} that must be as many as stages, {config.stages}",
            hint="use fewer slices or stages (2 or more)",
        )
    needed = shared_bytes(problem, config)
    if config.stages < 2 or needed > machine.shared_memory_bytes_per_cta:
        raise UserError(
            f"{config.label()} takes {needed} bytes of shared memory; a CTA of {machine.name} has "
            f"{machine.shared_memory_bytes_per_cta}, and the kernel needs 2 stages",
            hint=f"{stages_that_fit(problem, config, machine)} stages fit",
        )
    if config.early_release not in (0, 1) or (config.early_release and machine.architecture != "sm_90"):
        raise UserError(f"early_release is 0, or 1 on sm_90; got {config.early_release} on {machine.name}")
    largest = min(2, machine.max_cluster_size, machine.sms)
    if config.cluster > largest:
        raise UnsupportedError(
            f"clusters of {config.cluster} CTAs are not supported by gemm on {machine.name}; use "
            f"{'1 or 2' if largest == 2 else '1'}"
        )
    if config.cluster_side == "n" and config.schedule == "tcgen05":
        raise UnsupportedError("the CTAs of a tcgen05 pair lie side by side along m; use cluster_side m")


def check_items(problem: GemmProblem, config: GemmConfig) -> None:
    """Raise UserError if the problem is cut into more work items than memory is meant to hold."""
    check_item_count(f"{config.label()} cuts {problem.m} x {problem.n}", item_count(problem, config))


def _check_sm80(problem: GemmProblem, config: GemmConfig, machine: Machine) -> None:
    rows, cols = config.tile_m // config.warps[0], config.tile_n // config.warps[1]
    if config.tile_k not in SM80_TILE_K:
        raise UserError(f"a multistage tile_k is one of {', '.join(map(str, SM80_TILE_K))}; got {config.tile_k}")
    if rows % 16 or cols % 16 or rows * config.warps[0] != config.tile_m or cols * config.warps[1] != config.tile_n:
        raise UserError(f"each warp takes a multiple of 16 x 16 of the tile; {config.label()} gives {rows} x {cols}")
    round_bytes = config.warps[0] * config.warps[1] * LANES * LANE_BYTES[0]
    for side in (config.tile_m, config.tile_n):
        if side * config.tile_k * problem.element_bytes % round_bytes:
            raise UserError(
                f"all lanes of {config.warps[0] * config.warps[1]} warps copy {round_bytes} bytes at a time; a stage "
                f"of {side} x {config.tile_k} does not divide evenly",
                hint="use a larger tile_k or fewer warps",
            )
    if thread_registers(config) > machine.max_registers_per_thread:
        raise UserError(
            f"{config.label()} with {config.warps[0]} x {config.warps[1]} warps needs {thread_registers(config)} "
            f"registers a thread; {machine.name} has {machine.max_registers_per_thread}",
            hint="use more warps or a smaller tile",
        )


def _check_sm90(problem: GemmProblem, config: GemmConfig, machine: Machine) -> None:
    groups = 2 if config.schedule == "cooperative" else 1
    if config.tile_m % (64 * groups) or config.tile_n % 8 or not 8 <= config.tile_n <= 256:
        raise UserError(
            f"a {config.schedule} tile has a multiple of {64 * groups} rows and 8 to 256 columns in steps of 8, "
            f"got {config.tile_m} x {config.tile_n}"
        )
    if config.tile_n % store_columns(problem, config):
        raise UserError(
            f"a tile wider than one store of C has a multiple of {FRAGMENT_PAIR_COLUMNS} columns; "
            f"{config.label()} has {config.tile_n}, and a store takes up to {store_columns(problem, config)}"
        )
    _check_bulk_rows(problem, config)
    angles = min(config.tile_n, problem.head_dim) // 2 if problem.rotated else 0
    _check_accumulators(config.tile_m // groups * (config.tile_n + angles) // 128, config, machine)


def _check_sm100(problem: GemmProblem, config: GemmConfig, machine: Machine) -> None:
    columns = config.tile_n * ACCUMULATOR_STAGES
    if config.tile_m != ACCUMULATOR_LANES or config.tile_n % 16 or config.tile_n > 256:
        raise UserError(
            f"a tcgen05 tile has {ACCUMULATOR_LANES} rows a CTA and up to 256 columns in steps of 16, "
            f"got {config.tile_m} x {config.tile_n}"
        )
    _check_bulk_rows(problem, config)
    if columns > machine.tensor_memory_columns:
        raise UserError(
            f"two accumulators of {config.tile_n} columns do not fit tensor memory of {machine.tensor_memory_columns}"
        )


def _check_bulk_rows(problem: GemmProblem, config: GemmConfig) -> None:
    step, most = INSTRUCTION_K_BYTES // problem.element_bytes, SWIZZLE_BYTES // problem.element_bytes
    if config.tile_k % step or config.tile_k > most:
        raise UserError(
            f"tile_k is a multiple of {step}, which one matrix instruction sums over, up to {most}, a row of "
            f"{SWIZZLE_BYTES} bytes in the swizzled layout; got {config.tile_k}"
        )


def _check_accumulators(registers: int, config: GemmConfig, machine: Machine) -> None:
    limit = machine.max_registers_per_thread - OTHER_REGISTERS
    if registers > limit:
        raise UserError(
            f"{config.label()} keeps {registers} accumulator registers in each thread, with those of rope; at most "
            f"{limit} leave room for addresses and operands",
            hint="use a smaller tile",
        )
