"""Configurations of today's W4A16 by tcgen05 on B200."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.gemm.check import BARRIER_BYTES
from heddle.kernels.w4a16.check import check_steps, codebook_bytes
from heddle.kernels.w4a16.copied import PAIR
from heddle.kernels.w4a16.items import WORD, code_bytes
from heddle.kernels.w4a16.shape import ELEMENT_BYTES, W4Config, W4Problem
from heddle.kernels.w4a16.sm100_tcgen05 import PAIR_COLUMNS, WEIGHTS, Plan, w4_sm100_tcgen05
from heddle.kernels.w4a16.turned import TurnedTiles
from heddle.machine.spec import Machine

TOKENS = (256, 192, 128, 64)
"""CUTLASS ends at 128; products of so few are as short as what the warp that issues them waits between stages."""
WARPS = (GROUP_WARPS, 2 * GROUP_WARPS)
"""That make weights: CUTLASS has four; eight look up, so that twice as many entries are on their way."""
MAX_STAGES = 6
MAX_BLOCKS = 4
"""Of weights in tensor memory, as many as in CUTLASS's example."""
CLUSTER = 2
"""CTAs of a pair, where W is wide enough: CUTLASS's example of mixed types has pairs."""


def plan_of(problem: W4Problem, config: W4Config, machine: Machine) -> Plan:
    """Return the plan of a configuration: `tile_m` tokens, `tile_n` columns of W for each CTA.

    Two places of sums where they leave room for weights, else one.
    """
    cluster = CLUSTER if problem.n > WEIGHTS else 1
    columns = machine.tensor_memory_columns
    sums = 2 if 2 * config.tile_m + 2 * PAIR_COLUMNS <= columns else 1
    blocks = min(MAX_BLOCKS, (columns - sums * config.tile_m) // PAIR_COLUMNS)
    return Plan(TurnedTiles(WEIGHTS, config.tile_m, config.stages, cluster), config.warps // GROUP_WARPS, sums, blocks)


def candidates(problem: W4Problem, machine: Machine) -> list[W4Config]:
    """Return tiles worth trying, widest first. Raises UserError for what the kernel cannot run."""
    _check_problem(problem, machine)
    warps = WARPS[problem.looks_up]
    fitting = [tokens for tokens in TOKENS if tokens < 2 * problem.m or tokens == min(TOKENS)]
    return [
        W4Config(
            tile_m=tokens, tile_n=WEIGHTS, warps=warps,
            stages=min(MAX_STAGES, _most_stages(problem, tokens, machine)),
        )
        for tokens in fitting
    ]  # fmt: skip


def build(problem: W4Problem, config: W4Config, machine: Machine, params: Mapping[str, Any]) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    check_config(problem, config, machine)
    plan = plan_of(problem, config, machine)
    return w4_sm100_tcgen05.build("sm_100", problem, plan, machine.sms // plan.tiles.cluster, params=params)


def check_config(problem: W4Problem, config: W4Config, machine: Machine) -> None:
    """Raise UserError if a configuration breaks a rule of the machine or the kernel."""
    _check_problem(problem, machine)
    if config.tile_m not in TOKENS or config.tile_n != WEIGHTS or config.split_k != 1 or config.warps not in WARPS:
        raise UserError(
            f"by tcgen05 tile_m is one of {', '.join(map(str, TOKENS))}, tile_n {WEIGHTS}, warps (that make weights) "
            f"{' or '.join(map(str, WARPS))}, "
            f"split_k 1; got {config.label()}"
        )
    most = _most_stages(problem, config.tile_m, machine)
    if not 2 <= config.stages <= most:
        raise UserError(f"stages must be 2 to {most} for {config.label()}, as shared memory holds; got {config.stages}")


def _most_stages(problem: W4Problem, tokens: int, machine: Machine) -> int:
    cluster = CLUSTER if problem.n > WEIGHTS else 1
    room = machine.shared_memory_bytes_per_cta - codebook_bytes(problem) - BARRIER_BYTES
    of_columns = ELEMENT_BYTES * (1 if problem.looks_up else 2)
    codes = WEIGHTS * (code_bytes(problem) * PAIR // WORD + of_columns)
    return room // (tokens // cluster * PAIR * ELEMENT_BYTES + codes)


def _check_problem(problem: W4Problem, machine: Machine) -> None:
    if machine.architecture != "sm_100":
        raise UserError(
            f"tcgen05 exists on sm_100 only, {machine.name} is {machine.architecture}",
            hint="leave implementation out: mma.sync runs on every GPU",
        )
    check_steps(problem, "tcgen05", PAIR, PAIR, "leave implementation out: mma.sync takes it")
