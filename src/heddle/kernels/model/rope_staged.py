"""Rotary position embedding of wefts without full and empty bits: heads and angles come through shared memory."""

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
from heddle.kernels.gemm.rope import TABLE
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.model.rope_fiber import HEAD_REGISTERS, STEPS, unit_count, unit_heads, unit_rows
from heddle.kernels.model.rowwise import LANE_COLUMNS, WORKING_REGISTERS
from heddle.lang import Builder, kernel
from heddle.machine.spec import Machine


@kernel
def rope_staged(k: Builder, problem: GemmProblem, config: StagedConfig, machine: Machine) -> None:
    """A unit is some heads of the rows that four wefts have side by side."""
    k.flops = STEPS * problem.m * problem.rotated_cols
    d, dtype, rows, heads = problem.head_dim, problem.dtype, unit_rows(problem), unit_heads(problem)
    corners = [(row, col) for row in range(0, problem.m, rows) for col in range(0, problem.rotated_cols, heads * d)]
    units = {"row": [row for row, _ in corners], "col": [col for _, col in corners]}
    items, threads = staged_items(units, {"row": problem.m, "col": 0}, config, machine)
    k.work_items(items, clusters=threads)
    source, table = k.tensor("X", (problem.m, problem.n), dtype), k.tensor(TABLE, (problem.m, d), dtype)
    y = k.tensor("Y", (problem.m, problem.rotated_cols), dtype, role="output")
    groups, lanes, stages = range(config.groups), d // LANE_COLUMNS, config.stages
    angles = [k.shared(f"angles_{g}", (rows, d), dtype, stages=stages) for g in groups]
    places = [[k.shared(f"head{i}_{g}", (rows, d), dtype, stages=stages) for i in range(heads)] for g in groups]
    kinds = {"turn": dtype, "part": dtype, "wide": "fp32"}
    own = [
        [
            k.registers(f"{name}_{g}", (rows, d), kind, warps=(WEFTS, 1), spread="rows", row_lanes=lanes)
            for name, kind in kinds.items()
        ]
        for g in groups
    ]

    def copy(unit: Staged) -> None:
        copy_own(k, angles[unit.group], unit, table, unit.at("row"), 0, d)
        for index, place in enumerate(places[unit.group]):
            copy_own(k, place, unit, source, unit.at("row"), unit.at("col") + index * d, d)

    def work(unit: Staged) -> None:
        turn, part, wide = own[unit.group]
        k.load(turn, angles[unit.group][unit.at_stage])
        for index, place in enumerate(places[unit.group]):
            k.load(part, place[unit.at_stage])
            k.elementwise("cast", wide, part)
            k.elementwise("rotate", wide, wide, turn)
            k.store(y[unit.at("row"), unit.at("col") + index * d], wide)

    staged(k, config, needs(problem), copy, work)


def needs(problem: GemmProblem) -> StagedNeeds:
    """Return what a unit takes: heads and the table; in registers the table, and a head in 16 bits and in fp32."""
    head = unit_rows(problem) * problem.head_dim * dtype_bytes(problem.dtype)
    return StagedNeeds(
        unit_bytes=(unit_heads(problem) + 1) * head, work=2 * HEAD_REGISTERS + LANE_COLUMNS + WORKING_REGISTERS
    )


def staged_candidates(problem: GemmProblem, machine: Machine) -> list[StagedConfig]:
    """Return configurations worth trying."""
    return candidates(needs(problem), unit_count(problem), machine)


def build(problem: GemmProblem, config: StagedConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    check_item_count(f"rope cuts {problem.m} rows", unit_count(problem))
    check_config(config, needs(problem), machine)
    return rope_staged.build(machine.architecture, problem, config, machine, params=params)


STAGED = NativeKernel(candidates=staged_candidates, build=build, tile=TILE, needs=("dynamic_parallelism",))
"""For machines without full and empty bits: no register is shared."""
