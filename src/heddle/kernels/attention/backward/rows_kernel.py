"""Registry entries of the kernels around the main backward kernel: before it, after it, and sums over groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._limits import check_item_count
from heddle.kernels._parameters import TileParameter
from heddle.kernels.attention.backward.base import BackwardKernel
from heddle.kernels.attention.backward.reference import Backward, backward, group_sums
from heddle.kernels.attention.backward.rows import (
    WARPS,
    attention_bwd_convert,
    attention_bwd_group_sum,
    attention_bwd_preprocess,
    check_group,
)
from heddle.kernels.attention.backward.rows_fa3 import (
    attention_bwd_clear_keys,
    attention_bwd_convert_keys,
    attention_bwd_preprocess_fa3,
)
from heddle.kernels.attention.backward.rows_fiber import natives
from heddle.kernels.attention.backward.rows_pass import RowPass
from heddle.kernels.attention.backward.rows_passes import (
    ClearKeys,
    Convert,
    ConvertKeys,
    GroupSum,
    Preprocess,
    PreprocessFa3,
)
from heddle.kernels.attention.backward.tensors import padded
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E
from heddle.lang import KernelFunction
from heddle.machine.spec import Machine

ROWS = {64: 128, 128: 64, 256: 64}
"""Of a CTA, by head size: as many as the main kernel takes at a time (flash_bwd_launch_template.h at 073afd5)."""
Arrays = dict[str, NDArray[Any]]
Expected = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsConfig:
    """A CTA of eight warps takes `rows` rows of one head."""

    rows: int

    def label(self) -> str:
        """Return a short name, as in `64 rows`."""
        return f"{self.rows} rows"


TILE = (TileParameter("rows", int, "rows of a head that a CTA takes", "multiples of 32, up to 256"),)
"""What the fields of `RowsConfig` may be, for people."""


class BackwardRows(BackwardKernel[RowsConfig]):
    """One pass over rows, of queries or of keys (`of_keys`), there with the query heads of each group (`of_groups`).

    `function` is built with (problem, rows, items); `for_wefts`: the same pass in mode fiber.
    """

    tile = TILE
    architectures = ("sm_80", "sm_90", "sm_100")
    shares_dram = True

    def __init__(
        self,
        function: KernelFunction,
        summary: str,
        arrays: Callable[[AttentionProblem, Backward], tuple[Arrays, Expected]],
        for_wefts: type[RowPass],
        *,
        of_keys: bool = False,
        of_groups: bool = False,
    ) -> None:
        self.name, self.summary = function.__name__, summary
        self.of_keys, self.of_groups = of_keys or of_groups, of_groups
        self.function, self.arrays = function, arrays
        self.native = natives(for_wefts, self.architectures)

    def simt_candidates(self, machine: Machine, params: Mapping[str, Any]) -> list[RowsConfig]:
        """Return the rows that the open kernel takes."""
        return [RowsConfig(rows=ROWS[self.problem(params).head_dim])]

    def simt_build(self, machine: Machine, params: Mapping[str, Any], config: RowsConfig | None = None) -> TileProgram:
        """Return the tile program; without a configuration with the rows of the open kernel."""
        problem = self.problem(params)
        rows = (config or self.simt_candidates(machine, params)[0]).rows
        if rows not in range(4 * WARPS, 257, 4 * WARPS):
            raise UserError(f"rows of a CTA of {self.name} must be {TILE[0].allowed}, got {rows}")
        if self.of_groups:
            check_group(problem, self.name)
        items = work_items(problem, rows, keys=self.of_keys, groups=self.of_groups)
        params = {**self.check(params), "config": RowsConfig(rows=rows).label()}
        return self.function.build(machine.architecture, problem, rows, items, params=params)

    def reference(self, params: Mapping[str, Any], seed: int = 0) -> tuple[Arrays, Expected]:
        """Return seeded inputs by tensor name and the expected outputs in float64."""
        problem = self.problem(params)
        return self.arrays(problem, backward(problem, seed))

    def flops(self, params: Mapping[str, Any]) -> int:
        """Return the operations of the rows; those of the products are the main kernel's."""
        problem = self.problem(params)
        row_elements = problem.batch * problem.head_dim
        sums = 2 * row_elements * problem.heads_q * problem.seqlen_q
        return {
            "attention_bwd_preprocess": sums,
            "attention_bwd_preprocess_fa3": sums,
            "attention_bwd_convert": row_elements * problem.heads_q * problem.seqlen_q,
            "attention_bwd_group_sum": 2 * row_elements * (problem.heads_q - problem.heads_kv) * problem.seqlen_kv,
        }.get(self.name, 0)


def work_items(problem: AttentionProblem, rows: int, *, keys: bool, groups: bool) -> dict[str, list[int]]:
    """Return one item a CTA: plane and first row of the output, `groups`: those of its query heads; rows fastest."""
    planes = problem.batch * (problem.heads_kv if keys else problem.heads_q)
    firsts = range(0, problem.seqlen_kv if keys else problem.seqlen_q, rows)
    check_item_count(f"{planes} heads of {firsts.stop} rows", planes * len(firsts))
    items = {"plane": [plane for plane in range(planes) for _ in firsts], "row": [*firsts] * planes}
    for head in range(problem.group if groups else 0):
        items[f"plane{head}"] = [plane * problem.group + head for plane in items["plane"]]
    return items


def _before(problem: AttentionProblem, found: Backward) -> tuple[Arrays, Expected]:
    return {"O": found.o, "dO": found.do}, {"delta": found.delta, "dQ_accum": np.zeros_like(found.dq)}


def _after(problem: AttentionProblem, found: Backward) -> tuple[Arrays, Expected]:
    return {"dQ_accum": found.dq / problem.scale}, {"dQ": found.dq}


def _before_fa3(problem: AttentionProblem, found: Backward) -> tuple[Arrays, Expected]:
    expected = {"dPsum": padded(problem, found.delta), "LSE_log2": padded(problem, found.lse * LOG2_E)}
    given = {"O": found.o, "dO": found.do, "LSE": found.lse}
    return given, {**expected, "dQ_accum": np.zeros_like(found.dq)}


def _cleared_keys(problem: AttentionProblem, found: Backward) -> tuple[Arrays, Expected]:
    zeros = np.zeros_like(found.k)
    return {}, {"dK_accum": zeros, "dV_accum": zeros}


def _converted_keys(problem: AttentionProblem, found: Backward) -> tuple[Arrays, Expected]:
    sums = {"dK": group_sums(problem, found.dk), "dV": group_sums(problem, found.dv)}
    return {f"{name}_accum": array for name, array in sums.items()}, sums


def _sums(problem: AttentionProblem, found: Backward) -> tuple[Arrays, Expected]:
    heads = {"dK": found.dk, "dV": found.dv}
    return (
        {f"{name}_heads": array for name, array in heads.items()},
        {name: group_sums(problem, array) for name, array in heads.items()},
    )


PREPROCESS = BackwardRows(
    attention_bwd_preprocess,
    "backward of attention, before: delta = row sums of dO * O, and the fp32 accumulator of dQ cleared",
    _before,
    Preprocess,
)
CONVERT = BackwardRows(
    attention_bwd_convert,
    "backward of attention, after: dQ from its fp32 accumulator",
    _after,
    Convert,
)
GROUP_SUM = BackwardRows(
    attention_bwd_group_sum,
    "backward of attention, after, for grouped queries: dK and dV summed over the query heads of each group",
    _sums,
    GroupSum,
    of_groups=True,
)
PREPROCESS_FA3 = BackwardRows(
    attention_bwd_preprocess_fa3,
    "backward of FlashAttention 3 and 4, before: row sums of dO * O, LSE to base 2, the accumulator of dQ cleared",
    _before_fa3,
    PreprocessFa3,
)
CLEAR_KEYS = BackwardRows(
    attention_bwd_clear_keys,
    "backward of FlashAttention 3 and 4, before, for grouped queries: the fp32 accumulators of dK and dV cleared",
    _cleared_keys,
    ClearKeys,
    of_keys=True,
)
CONVERT_KEYS = BackwardRows(
    attention_bwd_convert_keys,
    "backward of FlashAttention 3 and 4, after, for grouped queries: dK and dV from their fp32 accumulators",
    _converted_keys,
    ConvertKeys,
    of_keys=True,
)
