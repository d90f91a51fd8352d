"""What the FIBER-native attention backward of H100 runs: its configurations for a problem, and its tile program."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels.attention.backward.sm90_fa3_config import HEAD_DIMS
from heddle.kernels.attention.backward.sm90_fiber import attention_bwd_fiber
from heddle.kernels.attention.backward.sm90_fiber_config import (
    BLOCK,
    HALVES,
    REDUCTIONS,
    FiberBackward90Config,
    Order,
    Scope,
    shared_bytes,
)
from heddle.kernels.attention.backward.sm90_fiber_items import fiber_backward_items
from heddle.kernels.attention.backward.sm90_fiber_literal import LITERAL
from heddle.kernels.attention.backward.sm90_fiber_phased import attention_bwd_fiber_phased
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine.spec import Machine

TILE = (
    TileParameter("tile_m", int, "queries of a step", "64, 128"),
    TileParameter("stages", int, "blocks of Q and of dO in shared memory", "2 or more, as shared memory holds"),
    TileParameter("key_stages", int, "blocks of K in shared memory", "2 or more, as shared memory holds"),
    TileParameter("slots", int, "places in the pool for P and dS of a block of keys", "1, 2"),
    TileParameter("parts", int, "products that dQ of a step is made in", "1, 2"),
    TileParameter("dq", str, "how dQ is added to memory", "bulk, atomics"),
)
"""What the fields of `FiberBackward90Config` may be, for people."""


def candidates(problem: AttentionProblem, machine: Machine, statistics: Scope = "sm") -> list[FiberBackward90Config]:
    """Return configurations worth trying, the one that is taken first. Raises UserError for what cannot be run."""
    _check_problem(problem)
    order: Order = "dynamic" if problem.causal else "static"
    if problem.head_dim > BLOCK:
        best = FiberBackward90Config(tile_m=BLOCK, slots=HALVES, order=order, statistics=statistics)
    else:
        best = FiberBackward90Config(tile_m=2 * BLOCK, slots=1, order=order, statistics=statistics)
    return [best, replace(best, dq="bulk")]


def phased_candidates(problem: AttentionProblem, machine: Machine) -> list[FiberBackward90Config]:
    """Return the one configuration without bits. Raises UserError for what cannot be run."""
    _check_problem(problem)
    order: Order = "dynamic" if problem.causal else "static"
    return [FiberBackward90Config(tile_m=BLOCK, order=order, statistics="role")]


def build(
    problem: AttentionProblem, config: FiberBackward90Config, machine: Machine, params: ProgramParams
) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    _check_problem(problem)
    _check_config(problem, config, machine)
    items = fiber_backward_items(problem, config)
    clusters = min(len(items["key"]), machine.sms)
    code = attention_bwd_fiber_phased if config.statistics == "role" else attention_bwd_fiber
    return code.build("sm_90", problem, config, items, clusters, params=params)


def _check_problem(problem: AttentionProblem) -> None:
    if problem.head_dim not in HEAD_DIMS:
        raise UserError(
            f"the FIBER-native backward pass of sm_90 has head sizes {', '.join(map(str, HEAD_DIMS))}, "
            f"got {problem.head_dim}"
        )


def _check_config(problem: AttentionProblem, config: FiberBackward90Config, machine: Machine) -> None:
    if config.tile_m not in (BLOCK, 2 * BLOCK) or min(config.stages, config.key_stages) < 2:
        raise UserError(
            f"tile_m is {BLOCK} or {2 * BLOCK}, stages and key_stages at least 2 (dK and dQ come a step later); "
            f"got {config.tile_m}, {config.stages} and {config.key_stages}"
        )
    if config.dq not in REDUCTIONS:
        raise UserError(f"dq is one of {', '.join(REDUCTIONS)}, got {config.dq!r}")
    least = config.tile_m // BLOCK
    if config.slots not in (1, HALVES) or not least <= config.parts <= HALVES:
        raise UserError(
            f"slots is 1 or {HALVES} and parts {least} to {HALVES} with tile_m = {config.tile_m}; "
            f"got {config.slots} and {config.parts}"
        )
    if config.statistics == "role" and (config.tile_m, config.slots, config.dq) != (BLOCK, HALVES, "atomics"):
        raise UserError(
            f"without full and empty bits tile_m is {BLOCK}, slots {HALVES} and dq atomics; "
            f"got {config.tile_m}, {config.slots} and {config.dq}"
        )
    _check_memory(problem, config, machine)


def _check_memory(problem: AttentionProblem, config: FiberBackward90Config, machine: Machine) -> None:
    room = machine.shared_memory_bytes_per_cta
    least = replace(config, stages=2, key_stages=2, dq="atomics")
    if (needed := shared_bytes(problem, least)) > room:
        raise UserError(
            f"tile_m = {config.tile_m} at head size {problem.head_dim} takes at least {needed} bytes of shared memory; "
            f"a FIBER-thread has {room}",
            hint=f"use tile_m = {BLOCK}",
        )
    needed = shared_bytes(problem, config)
    if needed > room:
        raise UserError(
            f"{config.label()} takes {needed} bytes of shared memory; a FIBER-thread has {room}",
            hint="use fewer stages, or dq = atomics, which takes none for dQ",
        )


WITHIN_SUBPARTITIONS = NativeKernel(
    candidates=partial(candidates, statistics="subpartition"),
    build=build,
    tile=TILE,
    needs=("dynamic_parallelism", "fine_scheduling", "register_sharing"),
)
"""For machines whose registers are shared inside a subpartition only."""
PHASED = NativeKernel(
    candidates=phased_candidates, build=build, tile=TILE, needs=("dynamic_parallelism", "register_sharing")
)
"""For machines without full and empty bits."""
SM90_FIBER_BACKWARD = NativeKernel(
    candidates=candidates,
    build=build,
    tile=TILE,
    needs=("dynamic_parallelism", "fine_scheduling", "register_sharing"),
    across=True,
    instead=(WITHIN_SUBPARTITIONS, PHASED, LITERAL),
)
"""The FIBER-native attention backward of H100."""
