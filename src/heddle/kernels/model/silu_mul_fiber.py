"""SiLU and multiplication with FIBER: gates and factors arrive in shared registers, block by block, all the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heddle.ir.tile import TileProgram
from heddle.kernels._limits import check_item_count
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._rounding import ceil_div
from heddle.kernels._streams import (
    TILE,
    WEFTS,
    Needs,
    Slot,
    StreamConfig,
    candidates,
    check_config,
    stream,
    unit_items,
    used_slots,
)
from heddle.kernels._warp import LANES
from heddle.kernels.model.rowwise import LANE_COLUMNS, WORKING_REGISTERS
from heddle.lang import Builder, kernel
from heddle.machine.spec import Machine

BLOCK = LANES * LANE_COLUMNS
"""Columns that are worked on together: eight of each lane."""
BLOCKS = 4
"""Of a unit."""
STEPS = 5
"""Operations for an element: negate, exponentiate, add, divide, multiply."""
NEEDS = Needs(unit=2 * BLOCKS * LANE_COLUMNS // 2, work=2 * LANE_COLUMNS + WORKING_REGISTERS)
"""Gates and factors of 16 bits in the pool; one block of each in fp32."""
Sizes = Mapping[str, Any]


@kernel
def silu_mul_fiber(k: Builder, sizes: Sizes, config: StreamConfig, machine: Machine) -> None:
    """Y = silu(gate) * factor; a unit is some blocks of a row of each of four wefts."""
    rows, cols, dtype = sizes["rows"], sizes["cols"], sizes["dtype"]
    k.flops = STEPS * rows * cols
    corners = [(row, col) for row in range(0, rows, WEFTS) for col in range(0, cols, BLOCKS * BLOCK)]
    units = {"row": [row for row, _ in corners], "col": [col for _, col in corners]}
    units["factor_col"] = [col + cols for col in units["col"]]
    items, threads = unit_items(units, config, machine)
    k.work_items(items, clusters=threads)
    source, y = k.tensor("H", (rows, 2 * cols), dtype), k.tensor("Y", (rows, cols), dtype, role="output")
    slots, size = used_slots(config, items), (WEFTS, BLOCKS * BLOCK)
    pool = {
        (g, s): [k.pool(f"{name}_{g}_{s}", size, dtype, spread="rows")[0] for name in ("gate", "factor")]
        for g, s in slots
    }
    wide = {
        g: [
            k.registers(f"wide_{name}_{g}", (WEFTS, BLOCK), "fp32", warps=(WEFTS, 1), spread="rows")
            for name in ("gate", "factor")
        ]
        for g in sorted({group for group, _ in slots})
    }

    def load(slot: Slot) -> None:
        for tile, attribute in zip(pool[slot.group, slot.stage], ("col", "factor_col"), strict=True):
            k.load(tile, source[slot.at("row"), slot.at(attribute)])
            k.set_busy_bit(tile, "full")

    def work(slot: Slot) -> None:
        (gate, factor), (wide_gate, wide_factor) = pool[slot.group, slot.stage], wide[slot.group]
        for first in range(0, BLOCKS * BLOCK, BLOCK):
            k.elementwise("cast", wide_gate, gate.columns(first, BLOCK))
            k.elementwise("silu", wide_gate, wide_gate)
            k.elementwise("cast", wide_factor, factor.columns(first, BLOCK))
            k.elementwise("mul", wide_gate, wide_gate, wide_factor)
            k.store(y[slot.at("row"), slot.at("col") + first], wide_gate)
        for tile in (gate, factor):
            k.set_busy_bit(tile, "empty")

    stream(k, config, items, NEEDS, load, work)


def unit_count(sizes: Sizes) -> int:
    """Return the units of a problem."""
    return ceil_div(sizes["rows"], WEFTS) * ceil_div(sizes["cols"], BLOCKS * BLOCK)


def fiber_candidates(sizes: Sizes, machine: Machine) -> list[StreamConfig]:
    """Return configurations worth trying."""
    return candidates(NEEDS, unit_count(sizes), machine)


def build(sizes: Sizes, config: StreamConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    check_item_count(f"silu_mul cuts {sizes['rows']} x {sizes['cols']}", unit_count(sizes))
    check_config(config, NEEDS)
    return silu_mul_fiber.build(machine.architecture, sizes, config, machine, params=params)


FIBER = NativeKernel(candidates=fiber_candidates, build=build, tile=TILE)
"""The FIBER-native kernel; the same for all architectures."""
