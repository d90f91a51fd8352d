"""Fibers of a warp that part and meet again: hand-computed cycles, in both engines, and long random walks."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from agreement import differences
from engine_builder import EXIT, h100, loop, op, program, run, waited
from heddle.errors import UserError
from heddle.ir.warp import Count, Instruction, Register, Ring, Stream, StreamRef, Tensor, WarpProgram
from heddle.ir.warp_verify import verify
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference
from heddle.sim.result import EventKind

BRANCH = 8
"""Cycles of a taken branch of the H100 description."""


def split(target: int, fibers: int) -> Instruction:
    """Return a branch of all fibers of the role but the first `fibers`."""
    return op("BRA.P", target=target, count=Count(value=fibers))


def two_paths(fibers: int, **fields: Any) -> WarpProgram:
    """Return a program: two instructions for the first fibers, one for the others, one for all."""
    return program(
        split(4, fibers), op("NOP"), op("NOP"), op("BSYNC", target=6),
        op("NOP"), op("BSYNC", target=6), op("NOP"), EXIT, **fields,
    )  # fmt: skip


def walk(p: WarpProgram, warp: int = 0) -> list[tuple[int, int]]:
    """Return (pc, issue cycle) of a warp; both engines must agree."""
    result = run(p, log="issue")
    assert not differences(simulate_reference(p, h100(), mode="sm"), run(p))
    assert result.log is not None
    rows = result.log[(result.log["kind"] == EventKind.ISSUE) & (result.log["warp"] == warp)]
    return [(int(row["pc"]), int(row["begin"])) for row in rows]


def test_fibers_that_part_run_one_path_after_the_other() -> None:
    first_end, second = 3, 3 + BRANCH
    assert walk(two_paths(8)) == [
        (0, 0), (1, 1), (2, 2), (3, first_end), (4, second), (5, second + 1), (6, second + 2), (7, second + 3),
    ]  # fmt: skip


def test_a_warp_whose_fibers_all_go_on_does_not_see_the_other_path() -> None:
    assert walk(two_paths(32)) == [(0, 0), (1, 1), (2, 2), (3, 3), (6, 3 + BRANCH), (7, 4 + BRANCH)]


def test_a_warp_whose_fibers_all_branch_sees_the_other_path_alone() -> None:
    assert walk(two_paths(0)) == [(0, 0), (4, BRANCH), (5, BRANCH + 1), (6, BRANCH + 2), (7, BRANCH + 3)]


def test_fibers_are_counted_over_the_warps_of_a_role() -> None:
    p = two_paths(40, warps=3)
    paths = [[pc for pc, _ in walk(p, warp)] for warp in range(3)]
    assert paths == [[0, 1, 2, 3, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7], [0, 4, 5, 6, 7]]


def test_the_count_may_be_an_attribute_of_the_work_item() -> None:
    parting = op("BRA.P", target=3, count=Count(attribute="valid"))
    p = program(parting, op("NOP"), op("BSYNC", target=3), op("NEXT", target=0), EXIT, items=[[0], [5], [32]],
                attributes=["valid"], schedule="static", grid=1)  # fmt: skip
    assert waited(run(p), 1)["SELECTED"] == 2


def test_yield_lets_the_other_path_go_on_and_each_resumes_where_it_was() -> None:
    p = program(
        split(4, 8), op("YIELD"), op("NOP"), op("BSYNC", target=7),
        op("YIELD"), op("NOP"), op("BSYNC", target=7), op("NOP"), EXIT,
    )  # fmt: skip
    assert [pc for pc, _ in walk(p)] == [0, 1, 4, 2, 3, 5, 6, 7, 8]


def test_yield_of_a_warp_with_one_path_costs_its_slot() -> None:
    p = program(split(3, 32), op("YIELD"), op("BSYNC", target=3), op("NOP"), EXIT)
    assert walk(p)[1:3] == [(1, 1), (2, 2)]


def test_the_way_to_another_path_is_branch_resolving() -> None:
    assert waited(run(two_paths(8)), 4) == {"SELECTED": 1, "BRANCH_RESOLVING": BRANCH - 1}


def _loading(yields: bool) -> WarpProgram:
    """Return a program whose two paths load from global memory and use what they have loaded."""
    stream = Stream(name="x", tensor="X", direction="load", blocks=64, block_bytes=128, base="zero")
    hand_over = [op("YIELD" if yields else "NOP")]

    def path(write: int, end: int) -> list[Instruction]:
        load = op("LDG", dst=Register(write), bytes=128, write=write, stream=StreamRef(name="x"))
        use = op("FADD", dst=Register(8), src=(Register(write),), wait=(write,))
        return [load, *hand_over, use, op("BSYNC", target=end)]

    rows = [split(5, 8), *path(1, 9), *path(2, 9), op("NOP"), EXIT]
    return program(*rows, tensors=(Tensor(name="X", shape=(64, 32), dtype="fp32"),), streams=(stream,))


def test_one_path_runs_while_the_load_of_the_other_is_on_its_way() -> None:
    alone, together = (run(_loading(yields)).cycles for yields in (False, True))
    latency = waited(run(_loading(False)), 3)["LONG_SCOREBOARD"]
    assert alone - together > 0.8 * latency


@pytest.mark.parametrize(
    ("position", "wrong", "text"),
    [
        (1, op("BAR.SYNC", warps=1), "BAR.SYNC where fibers of a warp may have parted"),
        (1, split(6, 4), "BRA.P where fibers of a warp may have parted"),
        (1, EXIT, "EXIT where fibers"),
        (4, op("SHFL", advance=("ring",)), "steps rings"),
        (3, op("BSYNC", target=7), "go on at different places: 7 and 6"),
        (6, op("YIELD"), "YIELD that no BRA.P leads to"),
    ],
)
def test_what_needs_all_fibers_is_an_error_where_they_may_have_parted(
    position: int, wrong: Instruction, text: str
) -> None:
    p = two_paths(8, rings=(Ring(name="ring", depth=2),))
    rows = list(p.instructions)
    rows[position] = wrong
    with pytest.raises(UserError, match=text):
        verify(dataclasses.replace(p, instructions=tuple(rows)))


def _random_program(seed: int) -> WarpProgram:
    """Return a loop over arithmetic and paths of random length, parted at random."""
    rng = random.Random(seed)
    rows: list[Instruction] = []
    for _ in range(rng.randrange(1, 4)):
        here, lengths = len(rows), (rng.randrange(1, 6), rng.randrange(0, 5))
        names = [[rng.choice(["NOP", "FADD", "YIELD", "MUFU", "YIELD"]) for _ in range(n)] for n in lengths]
        end = here + 2 + lengths[0] + (lengths[1] + 1 if lengths[1] else 0)
        rows.append(split(here + 2 + lengths[0], rng.choice([0, 8, 40, 64, 72, 128])))
        for path in names:
            if path:
                rows += [op(name, stall=rng.randrange(1, 5)) for name in path] + [op("BSYNC", target=end)]
        rows.append(op("FFMA", dst=Register(4), src=(Register(5),)))
    return program(*rows, loop(0, rng.randrange(1, 40)), EXIT, warps=4)


@pytest.mark.parametrize("seed", range(12))
def test_engines_agree_and_fast_forward_changes_nothing(seed: int) -> None:
    p = _random_program(seed)
    expected = simulate_reference(p, h100(), mode="sm")
    assert not differences(expected, simulate(p, h100(), mode="sm", fast_forward=False, engine="python"))
    assert not differences(expected, simulate(p, h100(), mode="sm"))
