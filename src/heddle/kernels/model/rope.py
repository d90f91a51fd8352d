"""The registry entry of rotary position embedding as a launch of its own, where no epilogue has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.ir.tile import TileProgram
from heddle.kernels._limits import check_item_count
from heddle.kernels._parameters import Parameter
from heddle.kernels._warp import LANES
from heddle.kernels.gemm.reference import angles, rotated
from heddle.kernels.gemm.rope import TABLE
from heddle.kernels.gemm.shape import GemmProblem
from heddle.kernels.model.rope_fiber import FIBER, MOST_HEADS, STEPS, unit_heads
from heddle.kernels.model.rope_staged import STAGED
from heddle.kernels.model.rowwise import (
    ELEMENTS,
    LANE_COLUMNS,
    ROWS,
    WARPS,
    WORKING_REGISTERS,
    RowsConfig,
    RowwiseKernel,
)
from heddle.kernels.model.shapes import cast_to
from heddle.lang import Builder, kernel
from heddle.machine.spec import Machine

TILE_REGISTERS = (MOST_HEADS + 1) * LANE_COLUMNS // 2 + LANE_COLUMNS
"""Of a thread: eight heads and the table, 16 bits; one head in fp32."""


@kernel
def rope(k: Builder, problem: GemmProblem, heads: int, config: RowsConfig, items: dict[str, list[int]]) -> None:
    """Write the rotated heads of Q and K, `heads` of them at a time."""
    k.flops = STEPS * problem.m * problem.rotated_cols
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    d, dtype = problem.head_dim, problem.dtype
    source, table = k.tensor("X", (problem.m, problem.n), dtype), k.tensor(TABLE, (problem.m, d), dtype)
    y = k.tensor("Y", (problem.m, problem.rotated_cols), dtype, role="output")
    kinds = {"angles": dtype, **{f"head{i}": dtype for i in range(heads)}, "wide": "fp32"}
    turn, *parts, wide = (
        k.registers(name, (config.rows, d), kind, warps=(WARPS, 1), spread="rows", row_lanes=d // LANE_COLUMNS)
        for name, kind in kinds.items()
    )
    with k.role("row", warps=WARPS, registers=TILE_REGISTERS + WORKING_REGISTERS):
        for item in k.work():
            k.load(turn, table[item.row, 0])
            for index, part in enumerate(parts):
                k.load(part, source[item.row, item.col + index * d])
            for index, part in enumerate(parts):
                k.elementwise("cast", wide, part)
                k.elementwise("rotate", wide, wide, turn)
                k.store(y[item.row, item.col + index * d], wide)


class Rope(RowwiseKernel):
    """Pairs of columns of the heads of Q and K, rotated by the position of the row."""

    name = "rope"
    native = dict.fromkeys(RowwiseKernel.architectures, replace(FIBER, instead=(*FIBER.instead, STAGED)))
    summary = "Q and K of the rows of a QKV projection, rotated by position, where no GEMM has it in its epilogue"
    parameters = (
        ROWS,
        Parameter("head_dim", int, 128, "elements of a head", choices=(64, 128)),
        Parameter("heads_q", int, 32, "query heads", small=4),
        Parameter("heads_kv", int, 8, "key and value heads", small=2),
        ELEMENTS,
    )

    def problem(self, params: Mapping[str, Any]) -> GemmProblem:
        """Return the projection whose rows are rotated, without its sum."""
        sizes = self.check(params)
        cols = (sizes["heads_q"] + 2 * sizes["heads_kv"]) * sizes["head_dim"]
        heads = {name: sizes[name] for name in ("head_dim", "heads_q", "heads_kv")}
        return GemmProblem(m=sizes["rows"], n=cols, k=1, dtype=sizes["dtype"], epilogue="rope", **heads)

    def cta_rows(self, params: Mapping[str, Any]) -> int:
        """Return the rows that lie side by side in all warps."""
        return WARPS * LANES * LANE_COLUMNS // int(params["head_dim"])

    def simt_build(self, machine: Machine, params: Mapping[str, Any], config: RowsConfig | None = None) -> TileProgram:
        """Return the tile program."""
        problem = self.problem(params)
        config = config or self.simt_candidates(machine, params)[0]
        heads, count = unit_heads(problem), problem.rotated_cols // problem.head_dim
        step = heads * problem.head_dim
        corners = [
            (row, col) for row in range(0, problem.m, config.rows) for col in range(0, problem.rotated_cols, step)
        ]
        check_item_count(f"rope cuts {problem.m} rows of {count} heads", len(corners))
        items = {"row": [row for row, _ in corners], "col": [col for _, col in corners]}
        params = {**self.check(params), "config": config.label()}
        return rope.build(machine.architecture, problem, heads, config, items, params=params)

    def reference(
        self, params: Mapping[str, Any], seed: int = 0
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
        """Return seeded X and the table T, and the rotated columns in float64."""
        problem = self.problem(params)
        x = cast_to(np.random.default_rng(seed).standard_normal((problem.m, problem.n)), problem.dtype)
        table = cast_to(angles(problem), problem.dtype)
        turned = rotated(x.astype(np.float64), table.astype(np.float64), problem)
        return {"X": x, TABLE: table}, {"Y": turned[:, : problem.rotated_cols]}

    def flops(self, params: Mapping[str, Any]) -> int:
        """Return three operations an element of Q and K."""
        problem = self.problem(params)
        return STEPS * problem.m * problem.rotated_cols


ROPE = Rope()
