"""May a tile in shared memory use the memory of another one, and are conflicts between the two found?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from heddle.errors import UserError
from heddle.interp import CheckReport, check
from heddle.ir.tile import TileProgram
from heddle.ir.tile_text import parse_program, print_program
from heddle.lang import Builder, kernel
from heddle.machine import machine
from heddle.passes import compile_program

H100 = machine("h100")
ROWS, COLS = 64, 64


def declared(*, rows: int = ROWS, cols: int = COLS, stages: int = 1, over: bool = True) -> TileProgram:
    """A tile `o` of fp32 over two stages of an 8-bit tile with rows of 256 bytes, or beside it."""

    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        under = k.shared("v", (ROWS, 256), "fp8_e4m3", stages=2)
        k.shared("o", (rows, cols), "fp32", stages=stages, overlays=under if over else None)
        with k.role("worker", warps=1, registers=32):
            k.sync()

    return small.build("sm_90")


def test_it_takes_no_memory_of_its_own() -> None:
    size = {over: compile_program(declared(over=over), H100).shared_memory_bytes for over in (True, False)}
    assert size[False] - size[True] == ROWS * COLS * 4


def test_the_text_form_keeps_it() -> None:
    program = declared()
    assert parse_program(print_program(program)) == program


@pytest.mark.parametrize("changes", [{"rows": 32}, {"cols": 72}, {"stages": 3}])
def test_a_tile_that_sticks_out_of_what_it_overlays_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="does not lie inside 'v'"):
        declared(**changes)


def run(*, ordered: bool) -> CheckReport:
    """One role writes and reads `v`; another writes `o`, which lies over it, before or after."""

    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        target = k.tensor("Y", (ROWS, COLS), "fp32", role="output")
        v = k.shared("v", (ROWS, COLS), "fp32")
        o = k.shared("o", (ROWS, COLS), "fp32", overlays=v)
        first, second = (k.registers(n, (ROWS, COLS), "fp32", warps=(4, 1)) for n in ("first", "second"))
        told = k.barrier("told", arrivals=4)
        with k.role("one", warps=4, registers=64):
            for item in k.work():
                k.fill(first, 1.0)
                k.store(v[:], first)
                k.load(first, v[:])
                told.arrive()
                k.store(target[item.row, 0], first)
        with k.role("two", warps=4, registers=64):
            for _ in k.work():
                k.fill(second, 2.0)
                if ordered:
                    told.wait()
                k.store(o[:], second)

    return check(compile_program(small.build("sm_90"), H100), H100, {}, {"Y": np.ones((ROWS, COLS))})


def test_ordered_use_of_the_same_memory_is_no_hazard() -> None:
    assert run(ordered=True).ok


def test_unordered_use_is_a_hazard_with_both_lines() -> None:
    report = run(ordered=False)
    assert {(hazard.object, len(hazard.lines)) for hazard in report.hazards} & {("v", 2), ("o", 2)}
