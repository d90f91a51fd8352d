"""Each latency that the bits guard: an access is legal at its end, and waits one cycle if it comes one earlier."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from engine_builder import op
from fiber_builder import (
    HELD,
    POOL,
    READ,
    L,
    at,
    bind,
    bit,
    fiber_program,
    issued,
    nops,
    read,
    run_fiber,
    spans,
    states,
    write,
)
from heddle.ir.warp import Instruction, Stream, StreamRef, Tensor
from heddle.sim.reference.chip import Chip
from heddle.sim.result import EventKind


def memory() -> dict[str, Any]:
    return {
        "tensors": (Tensor(name="a", shape=(64, 64), dtype="fp16"),),
        "streams": (
            Stream(name="a", tensor="a", direction="load", blocks=4, block_bytes=512, base="zero"),
            Stream(name="c", tensor="a", direction="store", blocks=4, block_bytes=512, base="zero"),
        ),
    }


WRITERS = {
    "FIXED": op("FFMA", dst=at(POOL), src=(at(1),)),
    "VARIABLE": op("MUFU", dst=at(POOL), src=(at(1),)),
    "SHARED": op("LDS", dst=at(POOL), src=(at(1),), bytes=512),
    "GLOBAL": op("LDG", dst=at(POOL), src=(at(2, count=2),), bytes=128, stream=StreamRef(name="a")),
}


def arrival(writer: Instruction, wait: int) -> dict[str, int]:
    """Return the states of a weft that reads a register so many cycles after its other weft wrote it."""
    p = fiber_program({0: [writer], 1: [*nops(wait), read()]}, **memory())
    return states(run_fiber(p), 1)


@pytest.mark.parametrize("unit", WRITERS)
def test_a_result_can_be_read_at_its_write_back_and_no_cycle_before(unit: str) -> None:
    p = fiber_program({0: [WRITERS[unit]], 1: [*nops(3), read()]}, **memory())
    ready = issued(run_fiber(p), 1)[3]
    assert ready > 3
    assert "POOL_EMPTY" not in arrival(WRITERS[unit], ready)
    assert arrival(WRITERS[unit], ready - 1)["POOL_EMPTY"] == 1


def test_the_write_back_of_each_unit_is_that_of_its_counter() -> None:
    """The cycle in which the bits let a reader go is the one in which a write barrier would."""
    for writer in WRITERS.values():
        counted = dataclasses.replace(writer, dst=at(3), control=dataclasses.replace(writer.control, write_barrier=0))
        by_bits = fiber_program({0: [writer, read(at(POOL))]}, **memory())
        by_counter = fiber_program({0: [counted, op("NOP", wait=[0])]}, **memory())
        assert issued(run_fiber(by_bits), 0)[1] == issued(run_fiber(by_counter), 0)[1]


READERS = {
    "FIXED": op("FFMA", dst=at(1), src=(at(POOL),)),
    "VARIABLE": op("MUFU", dst=at(1), src=(at(POOL),)),
    "SHARED": op("STS", src=(at(POOL),), bytes=512),
    "GLOBAL": op("STG", src=(at(POOL),), bytes=128, stream=StreamRef(name="c")),
}


def release(reader: Instruction, wait: int) -> Chip:
    """Write a held register so many cycles after its consumer has issued; another store comes first."""
    other = op("STS", src=(at(2),), bytes=512)  # the load/store unit is busy when the reader comes
    p = fiber_program({0: [other, bind(0), reader, *nops(wait), write()]}, prologue=HELD, **memory())
    return run_fiber(p)


@pytest.mark.parametrize("unit", READERS)
def test_a_register_can_be_written_at_its_consumption_and_no_cycle_before(unit: str) -> None:
    chip = release(READERS[unit], 0)
    distance = issued(chip, 0)[3] - issued(chip, 0)[2]
    assert distance >= READ
    assert "POOL_FULL" not in states(release(READERS[unit], distance - 1), 0)
    assert states(release(READERS[unit], distance - 2), 0)["POOL_FULL"] == 1


def test_a_store_consumes_when_the_load_store_unit_has_taken_it() -> None:
    """The first store takes 512 bytes / 128 a cycle; the second starts then."""
    chip = release(READERS["SHARED"], 0)
    assert issued(chip, 0)[3] == 512 // 128 + READ


def test_a_load_lands_in_the_pool_out_of_order() -> None:
    """H1: loads of different length; each consumer waits for its own register only."""
    slow = op("LDG", dst=at(POOL), src=(at(2, count=2),), bytes=128, stream=StreamRef(name="a"))
    fast = op("LDS", dst=at(POOL + 1), src=(at(1),), bytes=128)
    code = {
        0: [bind(hold=True), slow, bind(hold=True), fast],
        1: [bind(0), read()],
        2: [bind(0), read(at(POOL + 1, 0))],
    }
    prologue = [bit("empty", at(POOL, count=2), True)]
    chip = run_fiber(fiber_program(code, prologue=prologue, **memory()))
    (copy,) = spans(chip, EventKind.COPY)
    assert issued(chip, 1)[1] == copy[2] + L
    assert issued(chip, 2)[1] < copy[2]
    assert chip.warnings == []
