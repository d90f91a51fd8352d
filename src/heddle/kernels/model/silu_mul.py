"""The registry entry of SiLU and multiplication as a launch of its own, where no epilogue has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._limits import check_item_count
from heddle.kernels._parameters import Parameter
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
from heddle.kernels.model.silu_mul_fiber import BLOCK, BLOCKS, FIBER, STEPS
from heddle.kernels.model.silu_mul_staged import STAGED
from heddle.lang import Builder, kernel
from heddle.machine.spec import Machine

TILE_REGISTERS = 2 * BLOCKS * LANE_COLUMNS // 2 + 2 * LANE_COLUMNS
"""Of a thread: gates and factors of 16 bits, one block of each in fp32."""


@kernel
def silu_mul(k: Builder, rows: int, cols: int, dtype: str, items: dict[str, list[int]]) -> None:
    """Y = silu(gate) * factor; H has the gates of a row before its factors."""
    k.flops = STEPS * rows * cols
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    source, y = k.tensor("H", (rows, 2 * cols), dtype), k.tensor("Y", (rows, cols), dtype, role="output")
    kinds = {name: (BLOCKS * BLOCK, dtype) for name in ("gate", "factor")}
    kinds |= {f"wide_{name}": (BLOCK, "fp32") for name in ("gate", "factor")}
    gate, factor, wide_gate, wide_factor = (
        k.registers(name, (WARPS, width), kind, warps=(WARPS, 1), spread="rows")
        for name, (width, kind) in kinds.items()
    )
    with k.role("row", warps=WARPS, registers=TILE_REGISTERS + WORKING_REGISTERS):
        for item in k.work():
            k.load(gate, source[item.row, item.col])
            k.load(factor, source[item.row, item.factor_col])
            for first in range(0, BLOCKS * BLOCK, BLOCK):
                k.elementwise("cast", wide_gate, gate.columns(first, BLOCK))
                k.elementwise("silu", wide_gate, wide_gate)
                k.elementwise("cast", wide_factor, factor.columns(first, BLOCK))
                k.elementwise("mul", wide_gate, wide_gate, wide_factor)
                k.store(y[item.row, item.col + first], wide_gate)


class SiluMul(RowwiseKernel):
    """Y = silu(gate) * factor of the halves of each row."""

    name = "silu_mul"
    native = dict.fromkeys(RowwiseKernel.architectures, replace(FIBER, instead=(*FIBER.instead, STAGED)))
    summary = "Y[rows, cols] = silu(H[:, :cols]) * H[:, cols:], where no GEMM has it in its epilogue"
    parameters = (ROWS, Parameter("cols", int, 14336, "columns of Y", small=512), ELEMENTS)

    def problem(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the checked sizes."""
        sizes = self.check(params)
        if sizes["cols"] % LANE_COLUMNS:
            raise UserError(f"a lane loads {LANE_COLUMNS} columns at a time; cols = {sizes['cols']} is no multiple")
        return sizes

    def cta_rows(self, params: Mapping[str, Any]) -> int:
        """Return one row a warp."""
        return WARPS

    def simt_build(self, machine: Machine, params: Mapping[str, Any], config: RowsConfig | None = None) -> TileProgram:
        """Return the tile program."""
        sizes = self.problem(params)
        config = config or self.simt_candidates(machine, params)[0]
        rows, cols = sizes["rows"], sizes["cols"]
        corners = [(row, col) for row in range(0, rows, config.rows) for col in range(0, cols, BLOCKS * BLOCK)]
        check_item_count(f"silu_mul cuts {rows} x {cols}", len(corners))
        items = {"row": [row for row, _ in corners], "col": [col for _, col in corners]}
        items["factor_col"] = [col + cols for col in items["col"]]
        params = {**sizes, "config": config.label()}
        return silu_mul.build(machine.architecture, rows, cols, sizes["dtype"], items, params=params)

    def reference(
        self, params: Mapping[str, Any], seed: int = 0
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
        """Return seeded H, and Y in float64."""
        sizes, generator = self.problem(params), np.random.default_rng(seed)
        h = cast_to(generator.standard_normal((sizes["rows"], 2 * sizes["cols"])), sizes["dtype"])
        return {"H": h}, {"Y": halves_gated(h.astype(np.float64))}

    def flops(self, params: Mapping[str, Any]) -> int:
        """Return five operations an element."""
        sizes = self.problem(params)
        return STEPS * int(sizes["rows"]) * int(sizes["cols"])


def halves_gated(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return silu of the first half of each row times the second."""
    gate, factor = np.split(rows, 2, axis=1)
    found: NDArray[np.float64] = gate / (1 + np.exp(-gate)) * factor
    return found


SILU_MUL = SiluMul()
