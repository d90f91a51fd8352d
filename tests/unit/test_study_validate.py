"""Does validation simulate each case as its row says, and account for every case?"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heddle.errors import InternalError, UserError
from heddle.study.case_file import Case, read_cases
from heddle.study.pool import run_all
from heddle.study.runs import Request, request_of
from heddle.study.validate import selected, validate

HEADER = "case_id,gpu,kernel,dtype,m,n,k,measured,unit,clock_mhz,l2_state,includes_launch,power_note\n"
ROWS = """dg-1,h100,gemm,bf16,4096,2048,1024,100,us,,cold,0,L2 flushed
dg-2,h100,gemm,bf16,128,2048,1024,10,us,1485,cold,1,one wave
bbg-1,a100,gemm,fp16,4096,4096,4096,500,us,,warm,0,
fp8-1,a100,gemm,fp8_e4m3,4096,4096,4096,500,us,,warm,0,
x-1,h100,syrk,fp16,64,64,64,5,us,,warm,0,
y-1,v100,gemm,fp16,64,64,64,5,us,,warm,0,
"""


@pytest.fixture
def cases(tmp_path: Path) -> list[Case]:
    path = tmp_path / "cases.csv"
    path.write_text(HEADER + ROWS, encoding="utf-8")
    return read_cases(path)


def answer(asked: Request) -> dict[str, Any]:
    """Answer 110 us to everything that the kernel accepts."""
    from heddle.kernels.registry import find_kernel

    find_kernel(asked.kernel).candidates(asked.machine, asked.params)
    return {
        "time_us": 110.0, "clock_mhz": 1500.0, "tensor_utilization": 0.5, "params": {}, "traffic": {"dram_bytes": 1},
        "stalls_by_role": {},
    }  # fmt: skip


def test_every_case_is_simulated_or_accounted_for(cases: list[Case]) -> None:
    found = validate(cases, jobs=1, simulate=answer)
    assert [o.case.case_id for o in found.outcomes] == ["dg-1", "dg-2", "bbg-1"]
    assert [n.case.case_id for n in found.not_modelled] == ["fp8-1", "x-1", "y-1"]


def test_what_is_not_modelled_says_why(cases: list[Case]) -> None:
    why = {n.case.case_id: n.why for n in validate(cases, jobs=1, simulate=answer).not_modelled}
    assert "fp16, bf16; got 'fp8_e4m3'" in why["fp8-1"]
    assert why["x-1"].startswith("unknown kernel 'syrk'")
    assert why["y-1"].startswith("unknown machine 'v100'")


def test_a_broken_law_is_not_taken_for_a_missing_model(cases: list[Case]) -> None:
    def broken(asked: Request) -> Mapping[str, Any]:
        raise InternalError("tensor utilization 1.2 is above 1")

    with pytest.raises(InternalError):
        validate(cases, jobs=1, simulate=broken)  # type: ignore[arg-type]


def test_groups_are_families_then_sizes_then_all(cases: list[Case]) -> None:
    groups = validate(cases, jobs=1, simulate=answer).groups()
    assert [(gpu, name, summary.cases) for gpu, name, summary in groups] == [
        ("h100", "dg", 2), ("h100", "M, N, K >= 1024", 1), ("h100", "rest", 1), ("h100", "all", 2),
        ("a100", "bbg", 1), ("a100", "M, N, K >= 1024", 1), ("a100", "all", 1),
    ]  # fmt: skip


def test_a_flushed_row_asks_for_a_rested_chip_and_a_flushed_l2(cases: list[Case]) -> None:
    asked = request_of(cases[0])
    assert (asked.l2_state, asked.rested, asked.clock_mhz, asked.includes_launch) == ("flushed", True, None, False)


def test_a_row_with_a_clock_and_launch_asks_for_them(cases: list[Case]) -> None:
    asked = request_of(cases[1])
    assert (asked.l2_state, asked.rested, asked.clock_mhz, asked.includes_launch) == ("cold", True, 1485.0, True)


def test_a_kernel_whose_tile_is_known_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text(HEADER + "gtsim-gemm-512,h100,gemm,fp16,512,512,512,6.6,us,1485,cold,1,\n", encoding="utf-8")
    assert request_of(read_cases(path)[0]).pins == {"tile_m": 128, "tile_n": 128, "cluster": 1, "split_k": 1}


def test_a_family_whose_script_clears_l2_asks_for_that_and_for_a_rested_chip(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    columns = "case_id,gpu,kernel,batch,heads_q,heads_kv,seqlen_q,seqlen_kv,head_dim,measured,unit,l2_state\n"
    path.write_text(columns + "fa3w8-005,h100,attention,2,16,16,8192,8192,128,1453,us,warm\n", encoding="utf-8")
    asked = request_of(read_cases(path)[0])
    assert (asked.l2_state, asked.rested) == ("flushed", True)


def test_a_family_that_is_timed_in_a_loop_keeps_the_clock_of_a_loop_although_l2_is_cleared(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    columns = "case_id,gpu,kernel,batch,heads_q,heads_kv,seqlen_q,seqlen_kv,head_dim,measured,unit,l2_state\n"
    path.write_text(columns + "fa4p-019,b200,attention,32,32,32,1024,1024,64,657,tflops,warm\n", encoding="utf-8")
    asked = request_of(read_cases(path)[0])
    assert (asked.l2_state, asked.rested) == ("flushed", False)


def test_a_warm_row_asks_for_a_back_to_back_loop(cases: list[Case]) -> None:
    asked = request_of(cases[2])
    assert (asked.l2_state, asked.rested) == ("warm", False)


def test_selecting_nothing_names_what_there_is(cases: list[Case]) -> None:
    with pytest.raises(
        UserError, match="no case of kernel gemm on b200\n  hint: there are cases of gemm, syrk on a100"
    ):
        selected(cases, kernel="gemm", gpu="b200")


def square(number: int) -> int:
    return number * number


def test_answers_come_in_the_order_of_the_questions() -> None:
    assert run_all(square, [3, 1, 2], jobs=2) == [9, 1, 4]


def die(number: int) -> int:
    os._exit(1)


def test_a_worker_that_dies_is_one_message() -> None:
    with pytest.raises(InternalError, match="a worker process died"):
        run_all(die, [1, 2], jobs=2)


def test_progress_is_reported_for_every_answer() -> None:
    seen: list[tuple[int, int]] = []
    run_all(square, [1, 2], jobs=1, progress=lambda done, total, what: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]
