"""Configurations of today's W4A16 by wgmma on H100."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.gemm.check import BARRIER_BYTES
from heddle.kernels.w4a16.check import check_steps, codebook_bytes
from heddle.kernels.w4a16.shape import ELEMENT_BYTES, TILE_K, W4Config, W4Problem
from heddle.kernels.w4a16.sm90_wgmma import CHUNK, GROUP_ROWS, PAIR, STORE_STAGES, w4_sm90_wgmma
from heddle.kernels.w4a16.turned import TurnedTiles
from heddle.machine.spec import Machine

TOKENS = (256, 192, 128, 64)
WEIGHTS = (128, 64)
MAX_STAGES = 6
CLUSTER = 2
"""CTAs side by side that copy A for each other, where W is wide enough: Machete's clusters are 2 x 1, too."""


def tiles_of(problem: W4Problem, config: W4Config) -> TurnedTiles:
    """Return the tiles of a configuration: `tile_m` tokens, `tile_n` columns of W."""
    cluster = CLUSTER if problem.n > config.tile_n else 1
    return TurnedTiles(config.tile_n, config.tile_m, config.stages, cluster)


def candidates(problem: W4Problem, machine: Machine) -> list[W4Config]:
    """Return tiles worth trying, widest first. Raises UserError for what the kernel cannot run."""
    _check_problem(problem, machine)
    found = []
    for tokens in TOKENS:
        for weights in WEIGHTS:
            wide = tokens >= 2 * problem.m and tokens > min(TOKENS)
            if wide or (weights == min(WEIGHTS) and tokens < max(TOKENS)):
                continue
            stages = min(MAX_STAGES, _most_stages(problem, tokens, weights, machine))
            warps = weights // GROUP_ROWS * GROUP_WARPS
            found.append(W4Config(tile_m=tokens, tile_n=weights, stages=stages, warps=warps))
    return found


def build(problem: W4Problem, config: W4Config, machine: Machine, params: Mapping[str, Any]) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    check_config(problem, config, machine)
    tiles = tiles_of(problem, config)
    return w4_sm90_wgmma.build("sm_90", problem, tiles, machine.sms // tiles.cluster, params=params)


def check_config(problem: W4Problem, config: W4Config, machine: Machine) -> None:
    """Raise UserError if a configuration breaks a rule of the machine or the kernel."""
    _check_problem(problem, machine)
    if config.tile_m not in TOKENS or config.tile_n not in WEIGHTS or config.split_k != 1:
        raise UserError(
            f"by wgmma tile_m is one of {', '.join(map(str, TOKENS))}, tile_n of {', '.join(map(str, WEIGHTS))}, "
            f"split_k 1; got {config.label()}"
        )
    if config.warps != config.tile_n // GROUP_ROWS * GROUP_WARPS:
        raise UserError(f"by wgmma {GROUP_WARPS} warps have {GROUP_ROWS} columns of W; got {config.label()}")
    most = _most_stages(problem, config.tile_m, config.tile_n, machine)
    if not 2 <= config.stages <= most:
        raise UserError(f"stages must be 2 to {most} for {config.label()}, as shared memory holds; got {config.stages}")


def _most_stages(problem: W4Problem, tokens: int, weights: int, machine: Machine) -> int:
    staging = STORE_STAGES * CHUNK * weights * ELEMENT_BYTES
    room = machine.shared_memory_bytes_per_cta - codebook_bytes(problem) - staging - BARRIER_BYTES
    return room // (tokens * TILE_K * ELEMENT_BYTES)


def _check_problem(problem: W4Problem, machine: Machine) -> None:
    if machine.architecture != "sm_90":
        raise UserError(
            f"wgmma exists on sm_90 only, {machine.name} is {machine.architecture}",
            hint="leave implementation out: mma.sync runs on every GPU",
        )
    check_steps(problem, "wgmma", PAIR, 2 * PAIR, "leave implementation out: mma.sync takes it")
