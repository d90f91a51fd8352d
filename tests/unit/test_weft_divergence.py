"""Do fibers that part compute right numbers, on every generation, and is what they cannot do alone reported?"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from agreement import differences
from fiber_kernels import one_sm, run
from heddle import sim
from heddle.errors import UserError
from heddle.interp.check import CheckReport, check
from heddle.ir.tile_text import parse_program, print_program
from heddle.ir.warp import Instruction, WarpProgram
from heddle.lang import Builder, kernel
from heddle.machine import machine
from heddle.passes import compile_program

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "threads"))
import divergence

VALID = [0, 48, 128]


def checked(program: WarpProgram) -> CheckReport:
    """Run the example with random numbers."""
    rng, rows = np.random.default_rng(1), divergence.ROWS * len(VALID)
    x, default, scale = (rng.standard_normal((rows, divergence.COLS)).astype(np.float32) for _ in range(3))
    wanted = {"Y": divergence.expected(x, default, scale, VALID)}
    return check(program, one_sm(), {"X": x, "D": default, "scale": scale}, wanted, result=run(program))


@pytest.fixture(scope="module")
def program() -> WarpProgram:
    """Return the example, compiled for one SM."""
    return compile_program(divergence.ragged_exponential.build("sm_90", VALID), one_sm())


def test_numbers_are_right_where_some_none_and_all_fibers_take_a_path(program: WarpProgram) -> None:
    report = checked(program)
    assert report.ok, report.lines()


def test_a_row_of_the_wrong_fibers_is_seen(program: WarpProgram) -> None:
    effects = tuple(
        dataclasses.replace(e, params={**e.params, "fibers": 4}) if "fibers" in e.params else e for e in program.effects
    )
    assert not checked(dataclasses.replace(program, effects=effects)).ok


def test_the_engines_agree(program: WarpProgram) -> None:
    assert not differences(run(program, "reference"), run(program))


def test_the_tile_program_survives_its_text() -> None:
    tiles = divergence.ragged_exponential.build("sm_90", VALID)
    assert parse_program(print_program(tiles)) == tiles


def _cycles(valid: int) -> int:
    tiles = divergence.ragged_exponential.build("sm_90", [valid])
    return sim.simulate(compile_program(tiles, one_sm()), one_sm(), mode="chip", l2_state="cold").cycles


def test_a_weft_whose_fibers_part_hides_one_load_behind_the_other() -> None:
    """Both paths one after the other would take two waits for DRAM; fibers that stay together take one."""
    parted, first, second = _cycles(48), _cycles(128), _cycles(0)
    assert max(first, second) < parted < max(first, second) + 0.5 * min(first, second)


def test_each_path_goes_on_where_it_was(program: WarpProgram) -> None:
    log = run(program).log
    assert log is not None
    weft = program.roles[-1].first_warp + 1  # fibers 32 to 63 of the role: 16 of them are valid in item 1
    ops = [
        program.instructions[row["pc"]].op
        for row in log
        if row["kind"] == 0 and row["warp"] == weft and row["item"] == 1
    ]
    kept = [op for op in ops if op in ("BRA.P", "YIELD", "BSYNC", "MUFU")]
    assert kept[:3] == ["BRA.P", "YIELD", "YIELD"]
    assert kept[3:] == ["MUFU"] * (len(kept) - 5) + ["BSYNC", "BSYNC"]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_threads_of_a_warp_part_on_every_generation(architecture: str) -> None:
    gpu = {"sm_80": "a100", "sm_90": "h100", "sm_100": "b200"}[architecture]
    rows, lanes = (128, 1) if architecture == "sm_100" else (64, 4)

    @kernel
    def halves(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        y = k.tensor("Y", (rows, 32), "fp32", role="output")
        own = k.registers("own", (rows, 32), "fp32", warps=(4, 1))
        with k.role("all", warps=4, registers=64):
            for item in k.work():
                with k.fibers(first=16):
                    k.fill(own, 1.0)
                with k.other_fibers():
                    k.fill(own, 2.0)
                k.store(y[item.row, 0], own)

    device = machine(gpu).replace(sms=1)
    compiled = compile_program(halves.build(architecture), device)
    per_weft = rows // 4
    fiber = np.arange(rows) // per_weft * 32 + np.arange(rows) % (32 // lanes) * lanes
    wanted = np.where(fiber[:, None] < 16, 1.0, 2.0) * np.ones((rows, 32))
    result = sim.simulate(compiled, device, mode="chip", log="all", fast_forward=False)
    report = check(compiled, device, {}, {"Y": wanted}, result=result)
    assert report.ok, report.lines()


Body = Callable[[Builder], None]


def _parted(body: Body) -> Body:
    def code(k: Builder) -> None:
        shared = k.pool("s", (64, 8), "fp32")[0]
        own = k.registers("own", (64, 8), "fp32", warps=(4, 1))
        k.set_fiber_num(start=1, make=4, use=4)
        with k.role("start", registers=8):
            pass
        with k.role("make", registers=16):
            k.fill(shared)
            k.set_busy_bit(shared, "full")
        with k.role("use", window=1, registers=16):
            k.elementwise("copy", own, shared)
            body(k)
            k.set_busy_bit(shared, "empty")

    return code


def _meet(k: Builder) -> None:
    with k.fibers(first=8):
        k.sync(id=1, warps=4)


def _nested(k: Builder) -> None:
    with k.fibers(first=8), k.fibers(first=4):
        pass


def _loop(k: Builder) -> None:
    with k.fibers(first=8):
        for _ in k.range(3):
            pass


def _alone(k: Builder) -> None:
    with k.other_fibers():
        pass


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (_meet, "Sync where fibers have parted"),
        (_nested, "Fibers where fibers have parted"),
        (_loop, "For where fibers have parted"),
        (_alone, "other fibers than which"),
    ],
)
def test_what_needs_all_fibers_is_an_error_at_its_line(body: Body, text: str) -> None:
    @kernel
    def sample(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        _parted(body)(k)

    with pytest.raises(UserError, match=text) as caught:
        sample.build("sm_90")
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_a_channel_is_not_accessed_by_some_fibers_of_a_weft() -> None:
    @kernel
    def sample(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        shared = k.pool("s", (64, 8), "fp32")[0]
        own = k.registers("own", (64, 8), "fp32", warps=(4, 1))
        k.set_fiber_num(start=1, make=4, use=4)
        with k.role("start", registers=8):
            pass
        with k.role("make", registers=16):
            k.fill(shared)
            k.set_busy_bit(shared, "full")
        with k.role("use", window=1, registers=16):
            with k.fibers(first=8):
                k.elementwise("copy", own, shared)
            k.set_busy_bit(shared, "empty")

    with pytest.raises(UserError, match="touches pool tensor 's' where fibers have parted"):
        sample.build("sm_90")


def test_fibers_that_share_rows_do_not_part() -> None:
    with pytest.raises(UserError, match="the first 6 fibers; 4 neighbours share the rows"):
        compile_program(divergence.ragged_exponential.build("sm_90", [6]), one_sm())


def test_a_tile_that_one_path_alone_writes_is_not_read_afterwards() -> None:
    @kernel
    def half(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        y = k.tensor("Y", (64, 32), "fp32", role="output")
        own = k.registers("own", (64, 32), "fp32", warps=(4, 1))
        with k.role("all", warps=4, registers=64):
            for item in k.work():
                with k.fibers(first=16):
                    k.fill(own, 1.0)
                k.store(y[item.row, 0], own)

    with pytest.raises(UserError, match="read before anything is written"):
        half.build("sm_90")


def test_a_path_without_the_other_ends_where_the_code_goes_on() -> None:
    rows = compile_program(_one_sided().build("sm_90"), machine("h100").replace(sms=1)).instructions
    end = next(pc for pc, row in enumerate(rows) if row.op == "BSYNC")
    assert _targets(rows) == {end + 1}


def _targets(rows: tuple[Instruction, ...]) -> set[int | None]:
    return {row.target for row in rows if row.op in ("BRA.P", "BSYNC")}


def _one_sided():  # type: ignore[no-untyped-def]
    @kernel
    def sample(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        y = k.tensor("Y", (64, 32), "fp32", role="output")
        own = k.registers("own", (64, 32), "fp32", warps=(4, 1))
        with k.role("all", warps=4, registers=64):
            for item in k.work():
                k.fill(own, 0.0)
                with k.fibers(first=16):
                    k.fill(own, 1.0)
                k.store(y[item.row, 0], own)

    return sample
