"""SiLU and multiplication of wefts without full and empty bits: gates and factors come through shared memory."""

from __future__ import annotations

from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import TileProgram
from heddle.kernels._limits import check_item_count
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._staged import (
    TILE,
    Staged,
    StagedConfig,
    StagedNeeds,
    candidates,
    check_config,
    copy_own,
    staged,
    staged_items,
)
from heddle.kernels._streams import WEFTS
from heddle.kernels.model.rowwise import LANE_COLUMNS, WORKING_REGISTERS
from heddle.kernels.model.silu_mul_fiber import BLOCK, BLOCKS, STEPS, Sizes, unit_count
from heddle.lang import Builder, kernel
from heddle.machine.spec import Machine

KINDS = ("gate", "factor")


@kernel
def silu_mul_staged(k: Builder, sizes: Sizes, config: StagedConfig, machine: Machine) -> None:
    """Y = silu(gate) * factor; a unit is some blocks of a row of each of four wefts."""
    rows, cols, dtype = sizes["rows"], sizes["cols"], sizes["dtype"]
    k.flops = STEPS * rows * cols
    corners = [(row, col) for row in range(0, rows, WEFTS) for col in range(0, cols, BLOCKS * BLOCK)]
    units = {"row": [row for row, _ in corners], "col": [col for _, col in corners]}
    units["factor_col"] = [col + cols for col in units["col"]]
    items, threads = staged_items(units, {"row": rows, "col": 0, "factor_col": cols}, config, machine)
    k.work_items(items, clusters=threads)
    source, y = k.tensor("H", (rows, 2 * cols), dtype), k.tensor("Y", (rows, cols), dtype, role="output")
    groups, size = range(config.groups), (WEFTS, BLOCKS * BLOCK)
    places = [[k.shared(f"{name}s_{g}", size, dtype, stages=config.stages) for name in KINDS] for g in groups]
    own = [
        [
            k.registers(f"{name}_{g}", (WEFTS, BLOCK), kind, warps=(WEFTS, 1), spread="rows")
            for name, kind in (*((name, dtype) for name in KINDS), *((f"wide_{name}", "fp32") for name in KINDS))
        ]
        for g in groups
    ]

    def copy(unit: Staged) -> None:
        for place, attribute in zip(places[unit.group], ("col", "factor_col"), strict=True):
            copy_own(k, place, unit, source, unit.at("row"), unit.at(attribute), BLOCK)

    def work(unit: Staged) -> None:
        gate, factor, wide_gate, wide_factor = own[unit.group]
        for first in range(0, BLOCKS * BLOCK, BLOCK):
            for part, place in zip((gate, factor), places[unit.group], strict=True):
                k.load(part, place[unit.at_stage].part(col=first, cols=BLOCK))
            k.elementwise("cast", wide_gate, gate)
            k.elementwise("silu", wide_gate, wide_gate)
            k.elementwise("cast", wide_factor, factor)
            k.elementwise("mul", wide_gate, wide_gate, wide_factor)
            k.store(y[unit.at("row"), unit.at("col") + first], wide_gate)

    staged(k, config, needs(sizes), copy, work)


def needs(sizes: Sizes) -> StagedNeeds:
    """Return what a unit takes; in registers a block of each, in 16 bits and in fp32."""
    unit_bytes = len(KINDS) * WEFTS * BLOCKS * BLOCK * dtype_bytes(sizes["dtype"])
    return StagedNeeds(unit_bytes=unit_bytes, work=3 * LANE_COLUMNS + WORKING_REGISTERS)


def staged_candidates(sizes: Sizes, machine: Machine) -> list[StagedConfig]:
    """Return configurations worth trying."""
    return candidates(needs(sizes), unit_count(sizes), machine)


def build(sizes: Sizes, config: StagedConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    check_item_count(f"silu_mul cuts {sizes['rows']} x {sizes['cols']}", unit_count(sizes))
    check_config(config, needs(sizes), machine)
    return silu_mul_staged.build(machine.architecture, sizes, config, machine, params=params)


STAGED = NativeKernel(candidates=staged_candidates, build=build, tile=TILE, needs=("dynamic_parallelism",))
"""For machines without full and empty bits: no register is shared."""
