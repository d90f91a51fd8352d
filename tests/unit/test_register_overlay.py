"""May a register tile take the registers of the one that it is made from?"""

from __future__ import annotations

import pytest

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.ir.tile_text import parse_program, print_program
from heddle.lang import Builder, kernel
from heddle.machine import machine
from heddle.passes import compile_program

ROWS, COLS = 64, 64


def product(*, over: bool = True, function: str = "cast_regrouped", cols: int = COLS) -> TileProgram:
    """O = (Q K^T, regrouped as 8-bit elements) V; the latter lie in the registers of the scores, or beside them."""

    @kernel
    def small(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        target = k.tensor("O", (ROWS, ROWS), "fp32", role="output")
        q, keys = k.shared("q", (ROWS, COLS), "fp8_e4m3"), k.shared("k", (COLS, COLS), "fp8_e4m3")
        v = k.shared("v", (ROWS, COLS), "fp8_e4m3")
        with k.role("worker", warps=4, registers=128):
            scores = k.registers("s", (ROWS, COLS), "fp32", warps=(4, 1))
            weights = k.registers("p", (ROWS, cols), "fp8_e4m3", warps=(4, 1), overlays=scores if over else None)
            output = k.registers("o", (ROWS, ROWS), "fp32", warps=(4, 1))
            for item in k.work():
                k.mma(scores, q[:], keys[:], accumulate=False)
                k.mma_commit()
                k.mma_wait(pending=0)
                k.elementwise(function, weights, scores.columns(0, cols))
                k.mma(output, weights, v[:].part(cols=cols), accumulate=False)
                k.mma_commit()
                k.mma_wait(pending=0)
                k.store(target[item.row, 0], output)

    return small.build("sm_90")


def operands(program: TileProgram) -> tuple[set[int], set[int]]:
    """Return the registers of the scores, and those from which the second product reads its first operand."""
    products = [row for row in compile_program(program, machine("h100")).instructions if row.op == "QGMMA"]
    scores = products[0].dst
    assert scores is not None
    read = [row.src[0] for row in products if row.form == "rs"]
    return (
        set(range(scores.index, scores.index + scores.count)),
        {index for source in read for index in range(source.index, source.index + source.count)},
    )


@pytest.mark.parametrize("over", [True, False])
def test_it_lies_in_the_registers_of_the_other_only_if_it_overlays_it(*, over: bool) -> None:
    scores, read = operands(product(over=over))
    assert len(read) == len(scores) // 4
    assert (read <= scores) == over


def test_the_text_form_keeps_it() -> None:
    program = product()
    assert parse_program(print_program(program)) == program


def test_only_what_ends_the_other_tile_may_fill_it() -> None:
    with pytest.raises(UserError, match="only cast_regrouped fills it"):
        product(function="cast")


def test_a_tile_of_another_shape_is_refused() -> None:
    with pytest.raises(UserError, match="no fp32 register tile of its shape"):
        product(cols=32)
