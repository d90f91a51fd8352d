"""Do the softmax and the products of FlashAttention 4 have the instructions of the compiled kernel?

Counts of one block of a warp at head size 64, full, from the open kernel (flash_attn/cute at f82d0dc, compiled with
cutlass-dsl 4.5.2 for sm_100a).
"""

from __future__ import annotations

from collections import Counter

import pytest

from heddle.ir.warp import Instruction, WarpProgram
from heddle.machine import machine
from heddle.pipeline import compile_kernel

MARGIN = 0.05
SOFTMAX = {"MUFU": 113, "FFMA2": 88, "FADD2": 88, "F2FP": 64, "FMNMX3": 62, "FMNMX": 20, "LDTM": 4, "STTM": 4}
SOFTMAX_ALL, TILE_ALL = 508, 692
"""Instructions of a block, and of a tile outside the loop over blocks."""


@pytest.fixture(scope="module")
def program() -> WarpProgram:
    """Full attention at head size 64."""
    return compile_kernel(
        "attention", machine("b200"), {"batch": 1, "heads_q": 1, "seqlen_q": 1024, "head_dim": 64, "dtype": "bf16"}
    )


def code(program: WarpProgram, role: str) -> list[Instruction]:
    """All instructions of a role."""
    entries = [row.entry for row in program.roles] + [len(program.instructions)]
    index = next(i for i, row in enumerate(program.roles) if row.name == role)
    return list(program.instructions[entries[index] : entries[index + 1]])


def loop(program: WarpProgram, role: str) -> list[Instruction]:
    """The loop over blocks of a role."""
    start = next(row.entry for row in program.roles if row.name == role)
    end = next(pc for pc in range(start, len(program.instructions)) if program.instructions[pc].op == "LOOP")
    first = program.instructions[end].target
    assert first is not None
    return list(program.instructions[first : end + 1])


def test_softmax_of_a_block_against_the_compiled_one(program: WarpProgram) -> None:
    block = loop(program, "softmax0")
    mix = Counter(row.op for row in block)
    assert {op: mix[op] for op in SOFTMAX} == pytest.approx(SOFTMAX, rel=MARGIN)
    assert len(block) == pytest.approx(SOFTMAX_ALL, rel=MARGIN)


def test_first_block_of_a_tile_against_the_compiled_one(program: WarpProgram) -> None:
    outside = len(code(program, "softmax0")) - len(loop(program, "softmax0"))
    assert outside == pytest.approx(TILE_ALL, rel=0.15)


def test_products_of_a_block_are_those_of_the_compiled_one(program: WarpProgram) -> None:
    mix = Counter(row.op for row in loop(program, "matrix"))
    assert (mix["UTCHMMA"], mix["UTCBAR"], mix["SYNCS.TRYWAIT"]) == (24, 4, 6)
