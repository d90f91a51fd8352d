"""The list of tiles that a library would try for a GEMM; `heddle.study` picks one by simulating them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from heddle.errors import UnsupportedError, UserError, unknown_name
from heddle.kernels._rounding import ceil_div
from heddle.kernels.gemm.check import check_config, stages_that_fit
from heddle.kernels.gemm.estimate import estimate_cycles
from heddle.kernels.gemm.libraries import LIBRARIES, Sm90Tile
from heddle.kernels.gemm.raster import item_count
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.machine.spec import Machine

ROW_BYTES = 128
"""Bytes of k in one stage: one row of the 128-byte swizzle."""
MAX_STAGES = 8
MOST = 12
"""Length of the list."""
NARROW = 64
"""Rows below which a tile is only for matrices as narrow."""
STREAM_ROWS, STREAM_ITEMS = 16, 4
"""With so few rows the time is that of reading B; several items an SM keep the last ones short."""
LEAST_SPLIT_STEPS = 4
"""Steps of k that each slice keeps, so that filling the ring pays."""

SM80_TILES: tuple[tuple[int, int, int, int, tuple[int, int]], ...] = (
    (256, 128, 32, 4, (4, 2)),
    (256, 128, 64, 3, (4, 2)),
    (128, 256, 32, 4, (2, 4)),
    (128, 256, 64, 3, (2, 4)),
    (128, 128, 32, 4, (2, 2)),
    (128, 128, 64, 3, (2, 2)),
    (256, 64, 32, 4, (4, 1)),
    (64, 256, 32, 4, (1, 4)),
    (128, 64, 64, 3, (2, 2)),
    (64, 128, 64, 3, (2, 2)),
    (64, 64, 64, 5, (2, 2)),
    (16, 128, 64, 4, (1, 4)),
    (16, 64, 128, 4, (1, 4)),
)
"""Rows, columns, step of k, stages, warps along rows and columns."""
SM90_TILES: tuple[Sm90Tile, ...] = (
    ("cooperative", 128, 256),
    ("cooperative", 256, 128),
    ("cooperative", 128, 224),
    ("cooperative", 128, 192),
    ("cooperative", 128, 160),
    ("cooperative", 128, 128),
    ("cooperative", 128, 96),
    ("pingpong", 64, 256),
    ("pingpong", 128, 128),
    ("pingpong", 64, 128),
    ("pingpong", 64, 64),
)
SM100_TILES: tuple[tuple[int, int], ...] = (
    (2, 256),
    (2, 224),
    (2, 192),
    (2, 160),
    (2, 128),
    (1, 256),
    (1, 224),
    (1, 192),
    (1, 160),
    (1, 128),
    (1, 64),
)
"""CTAs of a pair, columns; a CTA has 128 rows."""


def candidates(problem: GemmProblem, machine: Machine, library: str = "") -> list[GemmConfig]:
    """Return up to `MOST` configurations that fit, those with the lowest estimate first; never empty.

    `library`: one of `libraries.LIBRARIES`, whose tiles are known and which does not cut k.
    """
    found: list[GemmConfig] = []
    for tile in _tiles(problem, machine, library):
        deep = tile if machine.architecture == "sm_80" else _deepest(problem, tile, machine)
        for config in [deep] if library else _splits(problem, deep, machine):
            if config not in found and _fits(problem, config, machine):
                found.append(config)
    return sorted(found, key=lambda config: estimate_cycles(problem, config, machine))[:MOST]


def _tiles(problem: GemmProblem, machine: Machine, library: str) -> Iterable[GemmConfig]:
    """Return the tiles of a library, or those of the architecture."""
    if not library:
        return {"sm_80": _sm80, "sm_90": _sm90, "sm_100": _sm100}[machine.architecture](problem)
    if library not in LIBRARIES:
        raise unknown_name("library", library, LIBRARIES)
    if machine.architecture not in LIBRARIES[library]:
        raise UserError(f"the tiles of {library} are listed for {', '.join(LIBRARIES[library])}, not {machine.name}")
    return _sm90(problem, LIBRARIES[library][machine.architecture])


def _sm80(problem: GemmProblem) -> Iterable[GemmConfig]:
    for tile_m, tile_n, tile_k, stages, warps in SM80_TILES:
        if _worth(problem, tile_m, tile_n, least_m=16):
            yield GemmConfig(
                schedule="multistage", tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, stages=stages, warps=warps
            )


def _sm90(problem: GemmProblem, tiles: Iterable[Sm90Tile] = SM90_TILES) -> Iterable[GemmConfig]:
    tile_k = ROW_BYTES // problem.element_bytes
    for schedule, tile_m, tile_n in tiles:
        plain = GemmConfig(schedule=schedule, tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, stages=2)
        for config in (replace(plain, cluster=2), replace(plain, cluster=2, cluster_side="n"), plain):
            if _worth(problem, tile_m * config.cluster_m, tile_n * config.cluster_n, least_m=64):
                yield config


def _sm100(problem: GemmProblem) -> Iterable[GemmConfig]:
    tile_k = ROW_BYTES // problem.element_bytes
    for cluster, tile_n in SM100_TILES:
        if _worth(problem, 128 * cluster, tile_n, least_m=128):
            yield GemmConfig(schedule="tcgen05", tile_m=128, tile_n=tile_n, tile_k=tile_k, stages=2, cluster=cluster)


def _worth(problem: GemmProblem, tile_m: int, tile_n: int, least_m: int) -> bool:
    """Drop tiles of which more than half would lie outside the matrix, and narrow ones where it is not narrow."""
    if tile_m < NARROW and problem.m > NARROW:
        return False
    return (tile_m < 2 * problem.m or tile_m == least_m) and (tile_n < 2 * problem.n or tile_n <= 64)


def _deepest(problem: GemmProblem, config: GemmConfig, machine: Machine) -> GemmConfig:
    """Give the configuration the stages that shared memory holds."""
    return replace(config, stages=max(2, min(MAX_STAGES, stages_that_fit(problem, config, machine))))


def _splits(problem: GemmProblem, config: GemmConfig, machine: Machine) -> Iterable[GemmConfig]:
    """Yield the configuration, and some that are cut along k: to fill idle SMs, to even out a long stream of B."""
    yield config
    slots, steps = machine.sms // config.cluster, ceil_div(problem.k, config.tile_k)
    items = item_count(problem, config)
    wanted = {slots // items}
    if problem.m <= STREAM_ROWS:
        wanted.add(ceil_div(STREAM_ITEMS * slots, items))
    for split in sorted({min(split, steps // LEAST_SPLIT_STEPS) for split in wanted}):
        if split > 1:
            stages = min(config.stages, steps // split) if config.schedule == "multistage" else config.stages
            yield replace(config, split_k=split, stages=stages)


def _fits(problem: GemmProblem, config: GemmConfig, machine: Machine) -> bool:
    try:
        check_config(problem, config, machine)
    except (UnsupportedError, UserError):
        return False
    return True
