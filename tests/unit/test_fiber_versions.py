"""Does the check of pool registers find each kind of hazard, with both lines, in an order that an engine might log?"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from engine_builder import EXIT, op, program, role
from fiber_builder import at, bind
from heddle.interp.hazards import Hazard
from heddle.interp.versions import version_hazards
from heddle.ir.warp import Instruction, Source, WarpProgram
from heddle.ir.warp_fiber import FiberNote
from heddle.sim.result import EVENT, EventKind

HELD, PLAIN, READ, GIVEN_BACK = "held write", "write", "read", "read and give back"
FOR_TWO, SHARED_READ, SHARED_BACK = "write held for two", "read of what two read", "read and give back of one of two"
CODE = (
    *(bind(hold=True), op("MOV", dst=at(16)), op("MOV", dst=at(16)), bind(0), op("FADD", dst=at(1), src=(at(16),))),
    *(bind(hold=True, readers=(0, 1)), op("MOV", dst=at(16))),
    *(bind(0, scoped=True), op("FADD", dst=at(1), src=(at(16, place=0),))),
)
PCS = {
    **{HELD: (0, 1), PLAIN: (2,), READ: (4,), GIVEN_BACK: (3, 4)},
    **{FOR_TWO: (5, 6), SHARED_READ: (8,), SHARED_BACK: (7, 8)},
}


def sample() -> WarpProgram:
    """Return a program whose instructions are written and read in any order by the log."""
    rows: list[Instruction] = [dataclasses.replace(row, source=pc) for pc, row in enumerate((*CODE, EXIT))]
    made = program(*rows, roles=(role(0, warps=12),))
    lines = tuple(Source(file="kernel.py", line=10 + pc, operation=row.op) for pc, row in enumerate(rows))
    note = FiberNote(registers=32, pool_first=16, pool_limit=32)
    return dataclasses.replace(made, mode="fiber", fiber=note, sources=lines)


def hazards(*accesses: tuple[int, str]) -> list[Hazard]:
    """Replay accesses (weft, kind), one after the other."""
    rows = [(weft, pc) for weft, kind in accesses for pc in PCS[kind]]
    log = np.zeros(len(rows), EVENT)
    log["kind"], log["begin"], log["end"] = EventKind.ISSUE, np.arange(len(rows)), np.arange(len(rows)) + 1
    log["warp"], log["pc"] = [weft for weft, _ in rows], [pc for _, pc in rows]
    return version_hazards(sample(), log)


def test_data_that_are_given_back_before_the_next_one_are_right() -> None:
    assert not hazards((0, HELD), (4, READ), (4, GIVEN_BACK), (0, HELD), (4, GIVEN_BACK))


def test_two_subpartitions_may_read_and_give_back_in_any_order() -> None:
    first = ((0, FOR_TWO), (5, SHARED_BACK), (4, SHARED_READ), (4, SHARED_BACK))
    assert not hazards(*first, (0, FOR_TWO), (4, SHARED_READ))


@pytest.mark.parametrize(
    ("accesses", "kind", "lines"),
    [
        (((0, FOR_TWO), (4, SHARED_BACK), (0, FOR_TWO)), "overwritten before read", ("kernel.py:16", "kernel.py:16")),
        (((0, FOR_TWO), (4, SHARED_BACK), (4, SHARED_READ)), "stale read", ("kernel.py:18", "kernel.py:18")),
        (((0, HELD), (4, GIVEN_BACK), (4, READ)), "stale read", ("kernel.py:14", "kernel.py:14")),
        (((0, PLAIN), (4, READ)), "stale read", ("kernel.py:14", "kernel.py:12")),
        (((0, HELD), (0, HELD)), "overwritten before read", ("kernel.py:11", "kernel.py:11")),
        (((0, HELD), (0, PLAIN)), "overwritten before read", ("kernel.py:12", "kernel.py:11")),
        (((0, HELD), (4, GIVEN_BACK), (8, PLAIN)), "lost update", ("kernel.py:12", "kernel.py:11")),
        (((0, HELD), (4, GIVEN_BACK), (8, HELD)), "double produce", ("kernel.py:11", "kernel.py:11")),
    ],
)
def test_hazards(accesses: tuple[tuple[int, str], ...], kind: str, lines: tuple[str, str]) -> None:
    found = hazards(*accesses)
    assert [(hazard.kind, hazard.lines) for hazard in found] == [(kind, lines)]
