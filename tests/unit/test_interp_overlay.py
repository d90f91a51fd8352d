"""Are conflicts of tensor-memory tiles that share columns found, and does a write to one end the other's values?

Both matter for kernels that put P over S.
"""

from __future__ import annotations

import numpy as np
import pytest

from heddle.interp import CheckReport, check
from heddle.interp._arrays import Box
from heddle.interp._overlay import Overlays
from heddle.ir.warp import DataObject
from heddle.lang import Builder, kernel
from heddle.machine import machine
from heddle.passes import compile_program

B200 = machine("b200")
ROWS, COLS = 128, 32


def memory(name: str, cols: int, dtype: str, overlays: str | None = None, overlay_col: int = 0) -> DataObject:
    """An object in tensor memory."""
    return DataObject(
        name=name,
        space="tensor_memory",
        shape=(1, ROWS, cols),
        dtype=dtype,
        scope="cta",
        overlays=overlays,
        overlay_col=overlay_col,
    )


OBJECTS = (memory("s", 128, "fp32"), memory("p", 128, "fp16", "s", 64), memory("o", 64, "fp32"))


@pytest.mark.parametrize(
    ("name", "cols", "columns"), [("s", (0, 64), (0, 64)), ("p", (0, 128), (64, 128)), ("p", (32, 34), (80, 81))]
)
def test_a_box_lies_in_the_columns_of_the_base(name: str, cols: tuple[int, int], columns: tuple[int, int]) -> None:
    box = Overlays(OBJECTS).box(name, Box(0, 0, ROWS, *cols))
    assert (box.col, box.col_end) == columns


@pytest.mark.parametrize(
    ("name", "cols", "others"),
    [("s", (0, 64), []), ("s", (70, 72), [("p", 12, 16)]), ("p", (0, 2), [("s", 64, 65)]), ("o", (0, 64), [])],
)
def test_a_write_overwrites_what_lies_there(
    name: str, cols: tuple[int, int], others: list[tuple[str, int, int]]
) -> None:
    found = Overlays(OBJECTS).overwritten(name, Box(0, 0, ROWS, *cols))
    assert [(other, box.col, box.col_end) for other, box in found] == others


def run(*, ordered: bool, col: int) -> CheckReport:
    """One group stores to and reads columns of `s`; the other stores to `p`, which lies over its second half."""

    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        target = k.tensor("Y", (ROWS, COLS), "fp32", role="output")
        s = k.tensor_memory("s", (ROWS, 2 * COLS), "fp32")
        p = k.tensor_memory("p", (ROWS, COLS), "fp32", overlays=s, overlay_col=COLS)
        first, second = (k.registers(n, (ROWS, COLS), "fp32", warps=(4, 1)) for n in ("first", "second"))
        told = k.barrier("told", arrivals=4)
        with k.role("one", warps=4, registers=64):
            for item in k.work():
                k.fill(first, 1.0)
                k.store(s[:].columns(col, COLS), first)
                k.load(first, s[:].columns(col, COLS))
                told.arrive()
                k.store(target[item.row, 0], first)
        with k.role("two", warps=4, registers=64):
            for _ in k.work():
                k.fill(second, 2.0)
                if ordered:
                    told.wait()
                k.store(p[:], second)
                k.load(second, p[:])

    return check(compile_program(small.build("sm_100"), B200), B200, {}, {"Y": np.ones((ROWS, COLS))})


def test_ordered_use_of_shared_columns_is_no_hazard() -> None:
    assert run(ordered=True, col=COLS).ok


def test_unordered_use_of_shared_columns_is_a_hazard_with_both_lines() -> None:
    report = run(ordered=False, col=COLS)
    kinds = {(hazard.object, len(hazard.lines)) for hazard in report.hazards}
    assert kinds & {("p", 2), ("s", 2)}


def test_other_columns_are_no_conflict() -> None:
    assert run(ordered=False, col=0).ok


def test_a_value_that_was_written_over_is_gone() -> None:
    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        target = k.tensor("Y", (ROWS, COLS), "fp32", role="output")
        s = k.tensor_memory("s", (ROWS, COLS), "fp32")
        p = k.tensor_memory("p", (ROWS, COLS), "fp32", overlays=s)
        tile = k.registers("tile", (ROWS, COLS), "fp32", warps=(4, 1))
        with k.role("one", warps=4, registers=64):
            for item in k.work():
                k.fill(tile, 1.0)
                k.store(p[:], tile)
                k.store(s[:], tile)
                k.load(tile, p[:])
                k.store(target[item.row, 0], tile)

    report = check(compile_program(small.build("sm_100"), B200), B200, {}, {"Y": np.ones((ROWS, COLS))})
    assert [(hazard.kind, hazard.object) for hazard in report.hazards] == [("uninitialised read", "p")]
    assert not report.ok
