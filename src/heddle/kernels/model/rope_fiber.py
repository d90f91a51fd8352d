"""Rotary position embedding with FIBER: heads, cosines and sines arrive in shared registers all the time."""

from __future__ import annotations

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
from heddle.kernels.gemm.rope import TABLE
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.model.rowwise import LANE_COLUMNS, WORKING_REGISTERS
from heddle.lang import Builder, RegisterHandle, kernel
from heddle.machine.spec import Machine

MOST_HEADS = 8
"""Of a unit, for one load of cosines and sines."""
STEPS = 3
"""Operations for an element: two products and a sum."""
HEAD_REGISTERS = LANE_COLUMNS // 2
"""Of a head or the table in 16 bits."""


@kernel
def rope_fiber(k: Builder, problem: GemmProblem, config: StreamConfig, machine: Machine) -> None:
    """A unit is some heads of the rows that four wefts have side by side."""
    k.flops = STEPS * problem.m * problem.rotated_cols
    d, dtype, rows, heads = problem.head_dim, problem.dtype, unit_rows(problem), unit_heads(problem)
    corners = [(row, col) for row in range(0, problem.m, rows) for col in range(0, problem.rotated_cols, heads * d)]
    units = {"row": [row for row, _ in corners], "col": [col for _, col in corners]}
    items, threads = unit_items(units, config, machine)
    k.work_items(items, clusters=threads)
    source, table = k.tensor("X", (problem.m, problem.n), dtype), k.tensor(TABLE, (problem.m, d), dtype)
    y = k.tensor("Y", (problem.m, problem.rotated_cols), dtype, role="output")
    slots, lanes = used_slots(config, items), d // LANE_COLUMNS

    def pooled(name: str) -> RegisterHandle:
        return k.pool(name, (rows, d), dtype, spread="rows", row_lanes=lanes)[0]

    turns = {(g, s): pooled(f"angles_{g}_{s}") for g, s in slots}
    pool = {(g, s): [pooled(f"head{i}_{g}_{s}") for i in range(heads)] for g, s in slots}
    wide = {
        g: k.registers(f"wide_{g}", (rows, d), "fp32", warps=(WEFTS, 1), spread="rows", row_lanes=lanes)
        for g in sorted({group for group, _ in slots})
    }

    def load(slot: Slot) -> None:
        turn = turns[slot.group, slot.stage]
        k.load(turn, table[slot.at("row"), 0])
        k.set_busy_bit(turn, "full")
        for index, part in enumerate(pool[slot.group, slot.stage]):
            k.load(part, source[slot.at("row"), slot.at("col") + index * d])
            k.set_busy_bit(part, "full")

    def work(slot: Slot) -> None:
        turn, here = turns[slot.group, slot.stage], wide[slot.group]
        for index, part in enumerate(pool[slot.group, slot.stage]):
            k.elementwise("cast", here, part)
            k.set_busy_bit(part, "empty")
            k.elementwise("rotate", here, here, turn)
            k.store(y[slot.at("row"), slot.at("col") + index * d], here)
        k.set_busy_bit(turn, "empty")

    stream(k, config, items, needs(problem), load, work)


def unit_rows(problem: GemmProblem) -> int:
    """Return the rows that lie side by side in four wefts."""
    return WEFTS * LANES * LANE_COLUMNS // problem.head_dim


def unit_heads(problem: GemmProblem) -> int:
    """Return the heads of a unit, a divisor of all."""
    count = problem.rotated_cols // problem.head_dim
    return next(n for n in range(min(MOST_HEADS, count), 0, -1) if count % n == 0)


def needs(problem: GemmProblem) -> Needs:
    """Return the registers of a weft: heads and the table in the pool, one head in fp32."""
    return Needs(unit=(unit_heads(problem) + 1) * HEAD_REGISTERS, work=LANE_COLUMNS + WORKING_REGISTERS)


def unit_count(problem: GemmProblem) -> int:
    """Return the units of a problem."""
    return ceil_div(problem.m, unit_rows(problem)) * (problem.rotated_cols // (problem.head_dim * unit_heads(problem)))


def fiber_candidates(problem: GemmProblem, machine: Machine) -> list[StreamConfig]:
    """Return configurations worth trying."""
    return candidates(needs(problem), unit_count(problem), machine)


def build(problem: GemmProblem, config: StreamConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    check_item_count(f"rope cuts {problem.m} rows", unit_count(problem))
    check_config(config, needs(problem))
    return rope_fiber.build(machine.architecture, problem, config, machine, params=params)


FIBER = NativeKernel(candidates=fiber_candidates, build=build, tile=TILE)
"""The FIBER-native kernel; the same for all architectures."""
