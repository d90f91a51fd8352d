"""Do the passes still produce the same code for one tiny GEMM a generation?

Golden files are rewritten by `HEDDLE_UPDATE_GOLDEN=1 pytest tests/text/test_passes_listing.py`; look at the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import passes_programs as tiny
from heddle.errors import UserError
from heddle.ir.warp_text import parse_program, print_program
from heddle.machine import machine
from heddle.passes import compile_program, run_passes
from heddle.passes.listing import listing
from schedule_programs import softmax

GOLDEN = Path(__file__).parent / "golden"
PROGRAMS = {"a100": tiny.ampere, "h100": tiny.hopper, "b200": tiny.blackwell}


@pytest.mark.parametrize("gpu", PROGRAMS)
def test_listing_is_the_golden_one(gpu: str) -> None:
    text = listing(compile_program(PROGRAMS[gpu](), machine(gpu))) + "\n"
    path = GOLDEN / f"passes_{gpu}.txt"
    if os.environ.get("HEDDLE_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("when", ["before", "after"])
def test_softmax_around_scheduling_is_the_golden_one(when: str) -> None:
    """Before: one operation after the other. After: maxima of both rows side by side, sums between exponentials."""
    shown: list[str] = []
    name = {"before": "select_instructions", "after": "schedule"}[when]
    run_passes(softmax(16), machine("h100"), print_after=[name], show=shown.append)
    text = shown[0] + "\n"
    path = GOLDEN / f"softmax_{when}_schedule.txt"
    if os.environ.get("HEDDLE_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("gpu", PROGRAMS)
def test_compiled_programs_survive_printing_and_parsing(gpu: str) -> None:
    program = compile_program(PROGRAMS[gpu](), machine(gpu))
    assert parse_program(print_program(program)) == program


@pytest.mark.parametrize("gpu", PROGRAMS)
def test_compiling_twice_gives_the_same_program(gpu: str) -> None:
    assert compile_program(PROGRAMS[gpu](), machine(gpu)) == compile_program(PROGRAMS[gpu](), machine(gpu))


def test_print_after_shows_the_passes_that_are_named() -> None:
    shown: list[str] = []
    run_passes(
        tiny.hopper(), machine("h100"), print_after=["layout_to_warps", "select_instructions"], show=shown.append
    )
    assert [text.splitlines()[0] for text in shown] == ["// after layout_to_warps", "// after select_instructions"]
    assert shown[0].splitlines()[1] == "consumer.acc: group, 1 x 16 x 64 a warp, 32 registers a lane"


def test_unknown_pass_in_print_after_is_named() -> None:
    with pytest.raises(UserError, match="unknown pass 'emitt'"):
        run_passes(tiny.hopper(), machine("h100"), print_after=["emitt"])
