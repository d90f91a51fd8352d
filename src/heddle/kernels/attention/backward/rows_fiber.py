"""The launches around the main backward kernel with FIBER: rows arrive in shared registers all the time, or by wefts.

Where a register can say that a load has landed, loading wefts bring units to working ones (`kernels/_streams.py`).
Else, and where nothing is loaded, each weft brings its own (`kernels/_alone.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.ir.tile import TileProgram
from heddle.kernels._alone import Alone, alone, alone_items, check_groups, groups_that_fit
from heddle.kernels._limits import check_item_count
from heddle.kernels._native import NativeKernel, NativeKernels, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels._rounding import ceil_div
from heddle.kernels._streams import (
    TILE,
    Needs,
    Slot,
    StreamConfig,
    candidates,
    check_config,
    stream,
    unit_items,
    used_slots,
)
from heddle.kernels.attention.backward.rows_pass import RowPass
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, GlobalBox, RegisterHandle, kernel
from heddle.machine.spec import Machine

MOST_GROUPS = 6
ALONE = (TileParameter("groups", int, "groups of four wefts", f"1 to {MOST_GROUPS}, as registers hold"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeftConfig:
    """A FIBER-thread has `groups` groups of four wefts."""

    groups: int

    def label(self) -> str:
        """Return a short name, as in `fiber g4 loaded`."""
        return f"fiber g{self.groups} loaded"


@kernel
def attention_bwd_rows_fiber(k: Builder, rows: RowPass, config: StreamConfig, machine: Machine) -> None:
    """Loading wefts bring the rows of a pass to working ones."""
    items, threads = unit_items(rows.units(), config, machine)
    k.work_items(items, clusters=threads)
    rows.declare(k)
    slots = used_slots(config, items)

    def pooled(at: str) -> list[RegisterHandle]:
        return rows.tiles(
            rows.loaded(),
            lambda name, shape, dtype: k.pool(name + at, shape, dtype, spread="rows", row_lanes=rows.row_lanes)[0],
        )

    pool = {(g, s): pooled(f"_{g}_{s}") for g, s in slots}
    own = {g: rows.own_tiles(k, rows.own, f"_{g}") for g in sorted({group for group, _ in slots})}

    def load(slot: Slot) -> None:
        for boxes in rows.boxes(slot):
            for tile, box in zip(pool[slot.group, slot.stage], boxes, strict=False):
                k.load(tile, box)
                k.set_busy_bit(tile, "full")

    def work(slot: Slot) -> None:
        def take(boxes: Sequence[GlobalBox]) -> list[RegisterHandle]:
            return pool[slot.group, slot.stage][: len(boxes)]

        rows.work(k, slot, own[slot.group], take, lambda tile: k.set_busy_bit(tile, "empty"))

    stream(k, config, items, needs(rows), load, work, begin_work=lambda g: rows.begin(k, own[g]))


@kernel
def attention_bwd_rows_wefts(k: Builder, rows: RowPass, config: WeftConfig, machine: Machine) -> None:
    """Each weft loads its rows of a pass, or has none to load."""
    items, threads = alone_items(rows.units(), config.groups, machine)
    k.work_items(items, clusters=threads)
    rows.declare(k)
    groups = range(config.groups)
    own = [rows.own_tiles(k, rows.own, f"_{g}") for g in groups]
    loaded = [[*rows.own_tiles(k, rows.loaded(), f"_{g}").values()] for g in groups]

    def work(unit: Alone) -> None:
        def take(boxes: Sequence[GlobalBox]) -> list[RegisterHandle]:
            tiles = loaded[unit.group][: len(boxes)]
            for tile, box in zip(tiles, boxes, strict=True):
                k.load(tile, box)
            return tiles

        rows.work(k, unit, own[unit.group], take, lambda tile: None)

    alone(k, items, config.groups, alone_registers(rows), work, begin=lambda g: rows.begin(k, own[g]))


def needs(rows: RowPass) -> Needs:
    """Return the registers of a unit in the pool, and of a working weft."""
    return Needs(unit=rows.registers(rows.loaded()), work=rows.working_registers())


def alone_registers(rows: RowPass) -> int:
    """Return the registers of a weft that loads its own rows."""
    return rows.registers(rows.loaded()) + rows.working_registers()


Pass = type[RowPass]


def fiber_candidates(problem: AttentionProblem, machine: Machine, kind: Pass) -> list[StreamConfig]:
    """Return configurations worth trying: with two pairs of roles where there is work for two; one is slower."""
    rows = kind(problem)
    found = candidates(needs(rows), rows.unit_count(), machine)
    return [config for config in found if config.groups == found[0].groups]


def fiber_build(
    problem: AttentionProblem, config: StreamConfig, machine: Machine, params: ProgramParams, kind: Pass
) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    rows = _checked(problem, kind)
    check_config(config, needs(rows))
    return attention_bwd_rows_fiber.build(machine.architecture, rows, config, machine, params=params)


def weft_candidates(problem: AttentionProblem, machine: Machine, kind: Pass) -> list[WeftConfig]:
    """Return configurations worth trying: as many groups as fit, and half of them, but none without a unit."""
    rows = kind(problem)
    most = min(ceil_div(rows.unit_count(), machine.sms), groups_that_fit(alone_registers(rows), MOST_GROUPS))
    return [WeftConfig(groups=groups) for groups in dict.fromkeys((most, ceil_div(most, 2)))]


def weft_build(
    problem: AttentionProblem, config: WeftConfig, machine: Machine, params: ProgramParams, kind: Pass
) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    rows = _checked(problem, kind)
    check_groups(config.groups, alone_registers(rows), MOST_GROUPS, "")
    return attention_bwd_rows_wefts.build(machine.architecture, rows, config, machine, params=params)


def _checked(problem: AttentionProblem, kind: Pass) -> RowPass:
    rows = kind(problem)
    check_item_count(f"{kind.__name__} cuts {rows.planes} heads of {rows.rows} rows", rows.unit_count())
    return rows


def natives(kind: Pass, architectures: Sequence[str]) -> NativeKernels:
    """Return the FIBER-native kernels of a pass, the same for all architectures."""
    wefts: NativeKernel[AttentionProblem, Any] = NativeKernel(
        candidates=partial(weft_candidates, kind=kind),
        build=partial(weft_build, kind=kind),
        tile=ALONE,
        needs=("dynamic_parallelism",),
    )
    if not kind.loads:
        return dict.fromkeys(architectures, wefts)
    streams = NativeKernel(
        candidates=partial(fiber_candidates, kind=kind),
        build=partial(fiber_build, kind=kind),
        tile=TILE,
        instead=(wefts,),
    )
    return dict.fromkeys(architectures, streams)
