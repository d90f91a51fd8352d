"""Checks W4A16 parameters and configurations against the rules of a machine."""

from __future__ import annotations

from heddle.errors import UserError
from heddle.kernels._limits import check_item_count
from heddle.kernels._warp import LANES
from heddle.kernels.w4a16.items import item_count, tail_blocks
from heddle.kernels.w4a16.shape import BOOKS, COPIES, ELEMENT_BYTES, ENTRIES, TILE_K, W4Config, W4Problem
from heddle.kernels.w4a16.sm80_loop import thread_registers
from heddle.machine.spec import Machine

WARP_COLUMNS = 16
"""Columns of a warp come in pairs of second operands, which one word of a lane serves."""
COPY_BYTES = 16
"""That a lane copies with cp.async."""
COLUMN_STEP = 8
"""Packed weights come in columns of this (AWQ)."""


def check_problem(problem: W4Problem) -> None:
    """Raise UserError if the weights cannot be packed so; the message names the rule."""
    if problem.looks_up:
        if problem.k % TILE_K or problem.n % COLUMN_STEP:
            raise UserError(
                f"codes of AQLM are taken in steps of {TILE_K} along k and {COLUMN_STEP} columns; k = {problem.k}, "
                f"n = {problem.n}"
            )
        return
    if problem.k % problem.group:
        raise UserError(
            f"k = {problem.k} is no multiple of the group, {problem.group}: scales belong to whole groups",
            hint="AWQ packs models whose hidden sizes are; pad k, or choose another group",
        )
    if problem.n % COLUMN_STEP:
        raise UserError(f"AWQ packs columns in steps of {COLUMN_STEP}; n = {problem.n} is no multiple")


def check_steps(problem: W4Problem, name: str, step: int, least: int, hint: str) -> None:
    """Raise UserError if a kernel that takes `step` elements of k at a time, `least` in all, cannot run the problem."""
    if problem.k % step or problem.k < least:
        more = f", {least} or more" if least > step else ""
        raise UserError(f"by {name} k comes in steps of {step}{more}; k = {problem.k}", hint=hint)
    if not problem.looks_up and problem.group != step:
        raise UserError(f"by {name} groups have {step} weights; group = {problem.group}", hint=hint)


def check_config(problem: W4Problem, config: W4Config, machine: Machine) -> None:
    """Raise UserError if a configuration breaks a rule of the machine or the kernel."""
    for name in ("tile_m", "tile_n", "stages", "warps", "split_k"):
        if getattr(config, name) < 1:
            raise UserError(f"{name} must be at least 1, got {getattr(config, name)}")
    _check_tile(config)
    _check_slices(problem, config)
    needed, limit = thread_registers(problem, config), machine.max_registers_per_thread
    if needed > limit:
        raise UserError(
            f"{config.label()} needs {needed} registers a thread; {machine.name} has {limit}",
            hint="use more warps or a smaller tile",
        )
    shared = config.tile_m * TILE_K * ELEMENT_BYTES * config.stages + codebook_bytes(problem)
    if shared > machine.shared_memory_bytes_per_cta:
        raise UserError(
            f"{config.label()} takes {shared} bytes of shared memory; a CTA of {machine.name} has "
            f"{machine.shared_memory_bytes_per_cta}"
        )
    check_item_count(f"{config.label()} cuts {problem.m} x {problem.n}", item_count(problem, config))


def codebook_bytes(problem: W4Problem) -> int:
    """Return the bytes of the codebooks that lie in shared memory."""
    return ENTRIES[problem.scheme] * COPIES * 8 * ELEMENT_BYTES if BOOKS.get(problem.scheme, 0) > 1 else 0


def _check_tile(config: W4Config) -> None:
    cols = config.tile_n // config.warps
    if config.tile_m % 16 or cols % WARP_COLUMNS or cols * config.warps != config.tile_n:
        raise UserError(
            f"a tile has rows in steps of 16 and {WARP_COLUMNS} columns or a multiple for each warp; {config.label()} "
            f"has {config.tile_m} and {cols}"
        )
    round_bytes = config.warps * LANES * COPY_BYTES
    if config.tile_m * TILE_K * ELEMENT_BYTES % round_bytes:
        raise UserError(
            f"all lanes of {config.warps} warps copy {round_bytes} bytes at a time; a stage of {config.tile_m} x "
            f"{TILE_K} does not divide evenly",
            hint="use more rows or fewer warps",
        )


def _check_slices(problem: W4Problem, config: W4Config) -> None:
    blocks, tail = problem.k // problem.block, tail_blocks(problem, config)
    if config.stages < 2 or (config.stages - 1) * TILE_K % problem.block:
        step = problem.block // TILE_K
        raise UserError(
            f"stages are 1 more than a multiple of {step}, so that groups of {problem.group} end with them; got "
            f"{config.stages}"
        )
    if blocks // config.split_k < tail + (blocks % config.split_k > 0):
        raise UserError(
            f"split_k = {config.split_k} leaves {blocks // config.split_k} blocks of {problem.block} to a slice; "
            f"{config.stages} stages need {tail}, or one more where slices differ",
            hint="use fewer slices or stages",
        )
