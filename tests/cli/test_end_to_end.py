"""Do the commands work on the real engine, on every GPU, at sizes that do not fit the tiles?"""

import json
from pathlib import Path

import pytest

import heddle
from heddle.errors import UserError
from heddle.trace import read_trace

from .conftest import Command

GPUS = ("a100", "h100", "b200")
ODD = ("--set", "m=200", "--set", "n=264", "--set", "k=136")


@pytest.mark.parametrize("gpu", GPUS)
def test_a_run_explains_every_cycle(heddle: Command, gpu: str) -> None:
    ended = heddle("run", "gemm", "--gpu", gpu, *ODD, "--json", "-")
    row = json.loads(ended.out)
    assert ended.code == 0
    assert sum(row["stalls"].values()) == pytest.approx(1.0)
    assert 0 < row["tensor_utilization"] <= row["pipes"]["tensor"] <= 1


@pytest.mark.parametrize("gpu", GPUS)
def test_a_check_passes_at_odd_sizes(heddle: Command, gpu: str) -> None:
    ended = heddle("check", "gemm", "--gpu", gpu, *ODD)
    assert (ended.code, "passed" in ended.out, "hazards: none" in ended.out) == (0, True, True)


@pytest.mark.parametrize("gpu", ["h100", "b200"])
def test_rows_that_bulk_copies_cannot_take_are_refused_by_rule(heddle: Command, gpu: str) -> None:
    ended = heddle("check", "gemm", "--gpu", gpu, "--set", "m=200", "--set", "n=264", "--set", "k=133")
    assert (ended.code, "multiple of 16 bytes" in ended.err) == (2, True)


@pytest.mark.parametrize("gpu", GPUS)
def test_a_compiled_kernel_prints_and_parses(heddle: Command, tmp_path: Path, gpu: str) -> None:
    from heddle.ir.warp_text import parse_program, print_program

    file = tmp_path / "gemm.warp"
    ended = heddle("compile", "gemm", "--gpu", gpu, *ODD, "-o", str(file))
    text = file.read_text(encoding="utf-8")
    assert (ended.code, print_program(parse_program(text)) == text) == (0, True)


def test_a_trace_file_is_written(heddle: Command, tmp_path: Path) -> None:
    file = tmp_path / "t.pftrace"
    assert heddle("run", "gemm", "--gpu", "h100", *ODD, "--trace", str(file)).code == 0
    assert file.stat().st_size > 1000


def test_a_trace_shows_the_machine_that_is_asked_for(heddle: Command, tmp_path: Path) -> None:
    file = tmp_path / "t.pftrace"
    assert heddle("run", "gemm", "--gpu", "h100", *ODD, "--oracle", "fs", "--trace", str(file)).code == 0
    names = {track.path[-1] for track in read_trace(str(file))[0]}
    assert {f"tensor (subpartition {place})" for place in range(4)} <= names


def test_a_repeated_run_gives_the_same_row(heddle: Command, result_cache: Path) -> None:
    first, second = (heddle("run", "gemm", "--gpu", "h100", *ODD, "--json", "-").out for _ in range(2))
    assert first == second


def test_a_profile_adds_lines_that_sum_to_the_whole(heddle: Command) -> None:
    row = json.loads(heddle("run", "gemm", "--gpu", "h100", *ODD, "--profile", "--json", "-").out)
    assert sum(line["share"] for line in row["by_line"]) == pytest.approx(1.0)


def test_the_python_interface_gives_the_same_answer(heddle: Command) -> None:
    from heddle import run

    row = json.loads(heddle("run", "gemm", "--gpu", "h100", *ODD, "--json", "-").out)
    assert run("gemm", gpu="h100", m=200, n=264, k=136).cycles == row["cycles"]


def test_a_compiled_program_can_be_simulated() -> None:
    program = heddle.compile("gemm", heddle.machine("h100"), m=256, n=256, k=256)
    assert heddle.simulate(program, heddle.machine("h100")).cycles > 0


def test_a_result_names_its_fields_when_one_is_missing() -> None:
    result = heddle.run("gemm", gpu="h100", m=256, n=256, k=256)
    with pytest.raises(AttributeError, match="did you mean 'cycles'"):
        _ = result.cycle


def test_compiling_something_else_is_refused() -> None:
    with pytest.raises(UserError, match="cannot compile int"):
        heddle.compile(5, "h100")  # type: ignore[arg-type]
