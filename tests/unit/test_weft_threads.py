"""Do the examples of wefts as threads compute right numbers, and is each misuse of shared registers reported?"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

from agreement import differences
from fiber_kernels import bind_mutants, one_sm, run
from heddle.errors import UserError
from heddle.interp.check import check
from heddle.ir.tile_text import parse_program, print_program
from heddle.ir.warp import WarpProgram
from heddle.lang import Builder, kernel
from heddle.machine import machine
from heddle.passes import compile_program
from heddle.passes.verify_channels import VerifyChannels
from heddle.sim import simulate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "threads"))
import two_threads
import weft_reduction

TILES = 3
GPUS = {"sm_80": "a100", "sm_90": "h100", "sm_100": "b200"}


@pytest.fixture(scope="module")
def reduction() -> WarpProgram:
    """Return the reduction, compiled for one SM."""
    return compile_program(weft_reduction.reduce_wefts.build("sm_90", TILES), one_sm())


@pytest.mark.parametrize("architecture", GPUS)
def test_wefts_of_one_thread_reduce_through_shared_registers(architecture: str) -> None:
    device = machine(f"{GPUS[architecture]}+fiber").replace(sms=1)
    program = compile_program(weft_reduction.reduce_wefts.build(architecture, TILES), device)
    rows = 4 * weft_reduction.WEFT_ROWS[architecture] * TILES * weft_reduction.TWICE
    x = np.random.default_rng(1).standard_normal((rows, weft_reduction.COLS))
    result = simulate(program, device, mode="chip", log="all", fast_forward=False)
    report = check(program, device, {"X": x}, weft_reduction.expected(x, TILES), result=result)
    assert report.ok, report.lines()


def test_engines_agree_on_reads_of_other_subpartitions(reduction: WarpProgram) -> None:
    ours, plain = run(reduction), run(reduction, "reference")
    assert not differences(plain, ours)
    assert ours.fiber is not None
    assert ours.fiber.crossbar_reads > 0


def test_a_datum_is_held_for_the_subpartitions_that_read_it(reduction: WarpProgram) -> None:
    binds = [row.bind for row in reduction.instructions if row.bind is not None]
    assert {bind.readers for bind in binds if bind.hold} == {(0, 1)}  # wefts 8 and 9
    assert all(set(bind.scoped) == set(bind.consume) for bind in binds)


def test_every_missing_hold_and_release_is_rejected(reduction: WarpProgram) -> None:
    kept = []
    mutants = list(bind_mutants(reduction))
    for name, mutant in mutants[:: max(1, len(mutants) // 24)]:
        try:
            VerifyChannels().run(mutant, one_sm())
            kept.append(name)
        except UserError:
            continue
    assert len(mutants) > 24
    assert kept == []


def test_a_machine_that_shares_inside_subpartitions_only_cannot_run_it() -> None:
    tight = one_sm().replace(sharing_scope="subpartition")
    with pytest.raises(UserError, match='has sharing_scope = "subpartition"'):
        compile_program(weft_reduction.reduce_wefts.build("sm_90", TILES), tight)


def test_the_tile_program_survives_its_text() -> None:
    tiles = weft_reduction.reduce_wefts.build("sm_90", TILES)
    assert parse_program(print_program(tiles)) == tiles


def _threads(count: int) -> WarpProgram:
    return compile_program(two_threads.exponentials.build("sm_90", 6, count), one_sm())


def test_two_threads_share_an_sm_and_each_computes_its_tiles() -> None:
    program = _threads(2)
    x = np.random.default_rng(1).standard_normal((6 * two_threads.ROWS, two_threads.COLS)).astype(np.float16)
    result = run(program)
    report = check(program, one_sm(), {"X": x}, {"Y": two_threads.expected(x.astype(np.float64))}, result=result)
    assert report.ok, report.lines()
    assert result.log is not None
    begins = [int(result.log["begin"][result.log["slot"] == slot].max()) for slot in (0, 1)]
    assert min(begins) > 0.5 * max(begins)  # both run until near the end


def test_two_threads_fill_each_others_waits() -> None:
    alone, together = (simulate(_threads(count), one_sm(), mode="chip", l2_state="cold").cycles for count in (1, 2))
    assert together < 0.85 * alone


def test_engines_agree_on_two_threads() -> None:
    program = _threads(2)
    assert not differences(run(program, "reference"), run(program))


def test_a_thread_that_takes_more_than_half_of_the_registers_is_alone() -> None:
    program = _threads(2)
    assert program.fiber is not None
    large = dataclasses.replace(program, fiber=dataclasses.replace(program.fiber, registers=260))
    log = run(large).log
    assert log is not None
    assert set(log["slot"].tolist()) == {0}


def _misuse(read_by: str = "all", readers: dict[str, int] | None = None, quarter: bool = True) -> None:
    readers = readers or {"use": 1}

    @kernel
    def sample(k: Builder) -> None:
        k.work_items({"row": [0]}, clusters=1)
        s = k.pool("s", (64, 8), "fp32", read_by=read_by)[0]  # type: ignore[arg-type]
        k.set_fiber_num(start=1, make=4, **readers)
        with k.role("start", registers=8):
            pass
        with k.role("make", registers=16):
            k.fill(s)
            k.set_busy_bit(s, "full")
        for name, wefts in readers.items():
            own = k.registers(f"{name}_own", (16 * wefts, 8), "fp32", warps=(wefts, 1))
            with k.role(name, window=1, registers=16):
                k.elementwise("copy", own, s.quarter(2) if quarter else s)
                k.set_busy_bit(s, "empty")

    sample.build("sm_90")


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ({"read_by": "own", "readers": {"use": 4}}, "only a pool tensor that all subpartitions read has quarters"),
        ({"readers": {"use": 4}, "quarter": False}, "reads it as rows of its own"),
        ({"readers": {"one": 4, "two": 4}}, "both with a weft in subpartition 0"),
    ],
)
def test_a_tensor_that_is_read_otherwise_than_declared_is_an_error(case: dict[str, object], text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        _misuse(**case)  # type: ignore[arg-type]
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_several_roles_read_one_tensor_from_different_subpartitions() -> None:
    _misuse(readers={"one": 1, "two": 1, "three": 1})


def test_there_are_four_quarters() -> None:
    builder = Builder("sample", "sm_90")
    s = builder.pool("s", (64, 8), "fp32", read_by="all")[0]
    with pytest.raises(UserError, match="quarter 4 of 's'; there are 0 to 3"):
        s.quarter(4)
