"""Which pairs of accesses are hazards? Small programs of a few warps that store and read, with and without order."""

from __future__ import annotations

import dataclasses
from typing import Any

import interp_logs as tiny
import numpy as np
import pytest

from heddle.interp import Execution, execute
from heddle.interp.schedule import random_schedule
from heddle.ir.warp import (
    Access,
    DataObject,
    Effect,
    Instruction,
    Register,
    Role,
    Source,
    Tensor,
    WarpProgram,
    Work,
)

ROWS = Access(object="s", rows=4, cols=8, rank_row=4)
OTHERS = Access(object="s", row=4, rows=4, cols=8)
TILE = Access(object="s", rows=8, cols=8)


def program(*rows: tuple[str, dict[str, Any]], warps: int = 2) -> WarpProgram:
    """Warps that run these instructions and end; the line of an instruction is 1 + its pc."""
    instructions = [Instruction(op=op, source=pc, **fields) for pc, (op, fields) in enumerate(rows)]
    return WarpProgram(
        name="stores",
        architecture="sm_90",
        instructions=(*instructions, Instruction(op="EXIT", source=len(rows))),
        roles=(Role(name="worker", first_warp=0, warps=warps, entry=0, registers_per_thread=32),),
        tensors=(Tensor(name="C", shape=(8, 8), dtype="fp32", role="output"),),
        work=Work(attributes=("row",), items=np.zeros((1, 1), np.int64), schedule="launch", grid=1),
        sources=tuple(
            Source(file="k.py", line=1 + pc, operation=op) for pc, (op, _) in enumerate((*rows, ("EXIT", {})))
        ),
        effects=(
            Effect(kind="fill", writes=(ROWS,), params={"value": 1.0}),
            Effect(kind="copy", reads=(OTHERS,), writes=(Access(object="r", rows=4, cols=8),)),
            Effect(kind="fill", writes=(TILE,), params={"value": 2.0}),
            Effect(kind="store", reads=(TILE,), writes=(Access(object="C", rows=8, cols=8),)),
            Effect(kind="fill", writes=(dataclasses.replace(ROWS, row=6),), params={"value": 3.0}),
        ),
        objects=(
            DataObject(name="s", space="shared", shape=(1, 8, 8), dtype="fp32", scope="cta"),
            DataObject(name="r", space="register", shape=(4, 8), dtype="fp32", scope="warp"),
        ),
    )


STS = ("STS", {"effect": 0})
READ = ("LDS", {"effect": 1, "dst": Register(0)})
BARRIER = ("BAR.SYNC", {"warps": 2})
FENCE = ("FENCE", {})
BULK = ("UTMASTG", {"effect": 3, "by": "role"})
COMMIT = ("UTMACMDFLUSH", {"by": "role"})
WAIT = ("UTMADEPBAR", {"by": "role"})


def kinds(*rows: tuple[str, dict[str, Any]], seed: int = 0) -> list[str]:
    """Kinds of hazards that a program shows under one random schedule."""
    return [hazard.kind for hazard in executed(program(*rows), seed).hazards]


def executed(what: WarpProgram, seed: int) -> Execution:
    """Execute under one random schedule."""
    result = tiny.result(tiny.run())
    result.log = random_schedule(what, seed)
    return execute(what, result, {})


@pytest.mark.parametrize("seed", range(6))
def test_a_barrier_orders_the_warps_that_meet_there(seed: int) -> None:
    assert kinds(STS, BARRIER, READ, seed=seed) == []


@pytest.mark.parametrize("seed", range(6))
def test_without_a_barrier_a_read_of_another_warps_rows_is_always_found(seed: int) -> None:
    found = kinds(STS, READ, seed=seed)
    # one of the two warps stores rows 4:8 and reads them itself; the other has nothing that orders it
    assert set(found) & {"read not ordered after write", "uninitialised read", "overwritten without order after read"}


@pytest.mark.parametrize("seed", range(6))
def test_two_warps_that_write_the_same_rows_race(seed: int) -> None:
    assert "written twice without order" in kinds(("STS", {"effect": 2}), seed=seed)


def test_a_write_beyond_the_tile_is_out_of_bounds() -> None:
    assert "out of bounds" in kinds(("STS", {"effect": 4}))


def test_a_bulk_store_needs_fence_barrier_and_wait() -> None:
    assert kinds(STS, FENCE, BARRIER, BULK, COMMIT, WAIT) == []
    assert kinds(STS, BARRIER, BULK, COMMIT, WAIT) == ["no fence before asynchronous read of"]
    assert kinds(STS, FENCE, BARRIER, BULK, COMMIT) == ["exit during bulk store"]
    assert kinds(STS, FENCE, BARRIER, BULK, WAIT) == ["exit during bulk store"]


def test_overwriting_the_source_of_a_bulk_store_is_found_with_both_lines() -> None:
    found = executed(program(STS, FENCE, BARRIER, BULK, COMMIT, STS, WAIT), 3).hazards
    assert any("k.py:4 UTMASTG" in h.text and "k.py:6 STS" in h.text for h in found)


def test_waiting_for_the_store_and_meeting_makes_the_overwrite_safe() -> None:
    assert kinds(STS, FENCE, BARRIER, BULK, COMMIT, WAIT, BARRIER, STS) == []


def test_values_reach_the_output() -> None:
    done = executed(program(STS, FENCE, BARRIER, BULK, COMMIT, WAIT), 0)
    assert np.array_equal(done.tensors["C"], np.ones((8, 8), np.float32))
    assert done.stored["C"].all()
