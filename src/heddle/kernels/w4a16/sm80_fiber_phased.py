"""W4A16 on A100 with wefts, but without full and empty bits: today's loop in four wefts, copies of A in four others.

Four wefts unpack weights, or look them up, in registers of their own and multiply by mma.sync, as today's warps do;
four copy A, and go on to the next tile while this one is stored. All meet once a stage, at a named barrier: it says
that the next stage has been copied, and that the last one has been read. No weft reads a register of another, with or
without registers that a subpartition shares. Codebooks in shared memory are copied once for all tiles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels.w4a16.candidates import candidates as todays_candidates
from heddle.kernels.w4a16.check import check_config
from heddle.kernels.w4a16.codebook import BOOK_BARRIER
from heddle.kernels.w4a16.items import item_count, tail_blocks, work_items
from heddle.kernels.w4a16.shape import TILE, TILE_K, W4Config, W4Problem
from heddle.kernels.w4a16.sm80_aqlm import AqlmLoop
from heddle.kernels.w4a16.sm80_awq import AwqLoop
from heddle.kernels.w4a16.sm80_loop import STAGE_BARRIER, MainLoop
from heddle.lang import Builder, Index, Item, kernel
from heddle.machine.spec import Machine

WEFTS = 4
"""Of a role: one a subpartition."""
MEETING = 2 * WEFTS
"""Wefts that meet at each stage."""
BEGIN_REGISTERS = 4
COPY_REGISTERS = 20
WORK_REGISTERS = 228
"""Of a weft that multiplies: a window's, beside those of the other roles, so that an SM has two FIBER-threads."""


class FiberPhasedW480Config(W4Config):
    """The configuration of today's kernel; `warps` are the wefts that multiply."""

    def label(self) -> str:
        """Return a short name, as in `fiber-phased 128x128x64 s3 w4`."""
        return f"fiber-phased {W4Config.label(self)}"


@kernel
def w4_sm80_fiber_phased(
    k: Builder, problem: W4Problem, config: W4Config, items: dict[str, list[int]], threads: int
) -> None:
    """Persistent over the tiles of C."""
    k.flops = problem.flops
    k.work_items(items, clusters=threads)
    loop = (AqlmLoop if problem.looks_up else AwqLoop)(k, problem, config, MEETING)
    loops = min(items["main"]) > 0
    k.set_fiber_num(begin=1, copy=WEFTS, multiply=WEFTS)

    with k.role("begin", registers=BEGIN_REGISTERS):  # the weft that a FIBER-thread starts with
        pass

    with k.role("copy", registers=COPY_REGISTERS):
        for item in k.work():
            _copies(k, loop, item, loops=loops)

    with k.role("multiply", registers=WORK_REGISTERS):
        if isinstance(loop, AqlmLoop) and loop.book_shared:
            loop.copy_books()
            k.cp_async_wait(pending=0)
            k.sync(BOOK_BARRIER)
        for item in k.work():
            loop.tile(item, loops=loops)


def _copies(k: Builder, loop: MainLoop, item: Item, *, loops: bool) -> None:
    """A of a tile. Behind its last meeting all stages but the last are free for the next tile."""
    stages = loop.problem.block // TILE_K
    loop.copy_ahead(item)
    if loops:
        for block in k.range(item.main, name="copied"):
            for stage in range(stages):
                _stage(k, loop, item, item.k_begin + block * loop.problem.block + stage * TILE_K)
    for _ in range(tail_blocks(loop.problem, loop.config) * stages):
        _stage(k, loop, item, None)


def _stage(k: Builder, loop: MainLoop, item: Item, at: Index | None) -> None:
    k.cp_async_wait(pending=loop.config.stages - 2)
    k.sync(STAGE_BARRIER, warps=MEETING)
    loop.copy_behind(item, at)
    loop.ring.advance()


def candidates(problem: W4Problem, machine: Machine) -> list[FiberPhasedW480Config]:
    """Return today's tiles for four warps that do not cut k. Raises UserError for what the kernel cannot run."""
    found = list(_configs(todays_candidates(problem, machine)))
    if not found:
        raise UserError(f"no tile of four wefts fits w4a16 of {problem.m} x {problem.n} x {problem.k}")
    return found


def build(problem: W4Problem, config: FiberPhasedW480Config, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent, two FIBER-threads an SM. Raises UserError if it does not fit."""
    if config.warps != WEFTS or config.split_k > 1:
        raise UserError(f"{WEFTS} wefts multiply, and k is not cut; got warps={config.warps}, split_k={config.split_k}")
    check_config(problem, config, machine)
    items, threads = work_items(problem, config, machine), min(2 * machine.sms, item_count(problem, config))
    return w4_sm80_fiber_phased.build("sm_80", problem, config, items, threads, params=params)


def _configs(found: Iterable[W4Config]) -> Iterable[FiberPhasedW480Config]:
    for config in found:
        if config.warps == WEFTS and config.split_k == 1:
            yield FiberPhasedW480Config(**{field.name: getattr(config, field.name) for field in fields(W4Config)})


PHASED = NativeKernel(candidates=candidates, build=build, tile=TILE, needs=("dynamic_parallelism",))
"""For machines without full and empty bits, whether their wefts share registers or not."""
