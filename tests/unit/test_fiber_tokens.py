"""Do tokens order what bits alone do not: an accumulator handed over in place, a tile that two roles write?"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fiber_kernels import one_sm, run
from heddle.errors import UserError
from heddle.interp.check import check
from heddle.ir.tile_text import parse_program, print_program
from heddle.ir.warp import WarpProgram
from heddle.lang import Builder, KernelFunction, kernel
from heddle.passes import compile_program
from heddle.passes.verify_channels import VerifyChannels

ROWS, COLS, DEPTH, ITEMS = 64, 64, 64, 3
TWICE = (2.0,)


class Gemm:
    """C = A B^T, one tile of A an item: what the variants share."""

    def __init__(self, k: Builder) -> None:
        self.k = k
        k.work_items({"row": [ROWS * i for i in range(ITEMS)]}, clusters=1)
        self.a_global, self.b_global = (
            k.tensor("A", (ITEMS * ROWS, DEPTH), "fp16"),
            k.tensor("B", (COLS, DEPTH), "fp16"),
        )
        self.c_global = k.tensor("C", (ITEMS * ROWS, COLS), "fp32", role="output")
        self.a, self.b = k.shared("a", (ROWS, DEPTH), "fp16"), k.shared("b", (COLS, DEPTH), "fp16")
        self.ring = k.ring("ring", 1)
        self.full, self.empty = k.barrier("full", arrivals=1), k.barrier("empty", arrivals=4)
        self.total = k.pool("total", (ROWS, COLS), "fp32")[0]
        self.done, self.free = k.token("done"), k.token("free")
        k.set_fiber_num(load=1, multiply=4, finish=4)
        with k.role("load", window=1, registers=4):
            for item in k.work():
                self.empty.wait(self.ring, flip=True)
                self.full.expect(self.ring, bytes=self.a.stage_bytes + self.b.stage_bytes)
                k.tma_load(self.a[:], self.a_global[item.row, 0], self.full[self.ring])
                k.tma_load(self.b[:], self.b_global[0, 0], self.full[self.ring])
                self.ring.advance()

    def multiply(self) -> None:
        """The product in place, in registers of the pool."""
        self.full.wait(self.ring)
        self.k.mma(self.total, self.a[:], self.b[:], accumulate=False)

    def release(self) -> None:
        """Give A and B back."""
        self.empty.arrive(self.ring)
        self.ring.advance()


@kernel
def handed_over(k: Builder, token: bool) -> None:
    """The accumulator is a channel, but each step of the chain writes it: a token says which write is the last."""
    gemm = Gemm(k)
    with k.role("multiply", window=0, registers=8):
        for _ in k.work():
            gemm.multiply()
            k.set_busy_bit(gemm.total, "full")
            gemm.done.give()
            gemm.release()
            gemm.free.take()
    with k.role("finish", window=0, registers=16):
        for item in k.work():
            if token:
                gemm.done.take()
            k.store(gemm.c_global[item.row, 0], gemm.total)
            k.set_busy_bit(gemm.total, "empty")
            if not token:
                gemm.done.take()
            gemm.free.give()


@kernel
def in_turns(k: Builder, token: bool) -> None:
    """Two roles write the same tile in turns: one multiplies, the other doubles."""
    gemm = Gemm(k)
    with k.role("multiply", window=0, registers=8):
        for _ in k.work():
            gemm.multiply()
            if token:
                gemm.done.give()
            gemm.release()
            gemm.free.take()
            if not token:
                gemm.done.give()
    with k.role("finish", window=0, registers=16):
        for item in k.work():
            if token:
                gemm.done.take()
            k.elementwise("scale", gemm.total, gemm.total, scalars=TWICE)
            k.store(gemm.c_global[item.row, 0], gemm.total)
            gemm.free.give()
            if not token:
                gemm.done.take()


def _operation(program: WarpProgram, pc: int) -> str:
    return program.sources[program.instructions[pc].source].operation


def compiled(function: KernelFunction) -> WarpProgram:
    """Return a kernel for one SM."""
    return compile_program(function.build("sm_90", True), one_sm())


@pytest.mark.parametrize(("function", "factor"), [(handed_over, 1.0), (in_turns, 2.0)], ids=["D3", "E2"])
def test_numbers_are_right_and_no_hazard_is_found(function: KernelFunction, factor: float) -> None:
    program, rng = compiled(function), np.random.default_rng(1)
    a, b = rng.standard_normal((ITEMS * ROWS, DEPTH)), rng.standard_normal((COLS, DEPTH))
    report = check(program, one_sm(), {"A": a, "B": b}, {"C": factor * a @ b.T}, result=run(program))
    assert report.ok, report.lines()


@pytest.mark.parametrize("function", [handed_over, in_turns], ids=["D3", "E2"])
def test_an_access_before_its_token_is_an_error_that_names_both_lines(function: KernelFunction) -> None:
    with pytest.raises(UserError, match=r"(?s)test_fiber_tokens.py:\d+.*test_fiber_tokens.py:\d+.*either order"):
        compile_program(function.build("sm_90", False), one_sm())


@pytest.mark.parametrize("function", [handed_over, in_turns], ids=["D3", "E2"])
def test_the_program_survives_its_text(function: KernelFunction) -> None:
    program = function.build("sm_90", True)
    assert parse_program(print_program(program)) == program


def test_a_token_is_one_move_on_each_side() -> None:
    program = compiled(in_turns)
    names = [_operation(program, pc) for pc, row in enumerate(program.instructions) if row.op == "MOV"]
    assert names.count("Fill") == names.count("TakeToken") == 2


def moved(program: WarpProgram, give: int, before: int) -> WarpProgram:
    """Return the program with a token's move, and its bind, in front of another instruction."""
    rows = program.instructions
    assert rows[give - 1].bind is not None
    order = [pc for pc in range(len(rows)) if pc not in (give - 1, give)]
    place = order.index(before)
    early = tuple(rows[pc] for pc in (*order[:place], give - 1, give, *order[place:]))
    return dataclasses.replace(program, instructions=early)


def gives(program: WarpProgram) -> list[int]:
    """Return where tokens are given."""
    rows = program.instructions
    return [pc for pc, row in enumerate(rows) if row.op == "MOV" and _operation(program, pc) == "Fill"]


def test_a_token_given_too_early_is_rejected() -> None:
    program = compiled(in_turns)
    product = max(pc for pc, row in enumerate(program.instructions) if row.op == "WMMA")
    with pytest.raises(UserError, match="either order"):
        VerifyChannels().run(moved(program, gives(program)[0], product), one_sm())


def test_a_race_on_a_tile_that_no_bind_names_is_a_hazard_beside_channels() -> None:
    program = compiled(in_turns)
    scale = next(pc for pc in range(len(program.instructions)) if _operation(program, pc) == "Elementwise")
    early = moved(program, gives(program)[1], scale)
    a, b = np.ones((ITEMS * ROWS, DEPTH)), np.ones((COLS, DEPTH))
    report = check(early, one_sm(), {"A": a, "B": b}, {"C": 2.0 * a @ b.T}, result=run(early))
    assert "total" in {hazard.object for hazard in report.hazards}
