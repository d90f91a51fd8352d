"""Does `heddle compare` put the runs side by side, take them from the store, and say what is absent?"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heddle import pipeline
from heddle.kernels import registry
from heddle.kernels.registry import find_kernel
from heddle.machine import machine as load
from heddle.machine.spec import Machine
from heddle.study import compare_all
from heddle.study.compare_all import Case

from .conftest import Command, fake_row

SMALL = ("--set", "m=512", "--set", "n=512", "--set", "k=512")
GEMM = ("compare", "gemm", "--gpu", "h100", *SMALL)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch, result_cache: Path) -> list[str]:
    """Answer at once, FIBER in half the cycles; return the modes that were simulated."""
    modes: list[str] = []

    def answer(
        kernel: str, machine: Machine, params: Mapping[str, Any], config: Any = None, *, mode: str = "simt",
        **options: Any,
    ) -> dict[str, Any]:  # fmt: skip
        modes.append(mode)
        find_kernel(kernel).build(machine, params, config, mode)  # what lacks a feature is refused
        row = fake_row(kernel, machine, params, config, **options)
        cycles = 1000 if mode == "fiber" else 2000
        return {**row, "mode": mode, "cycles": cycles, "ceiling_speedup": 1 / row["tensor_utilization"]}

    monkeypatch.setattr(pipeline, "run_once", answer)
    return modes


def compared(heddle: Command, *arguments: str) -> dict[str, Any]:
    ended = heddle(*arguments, "--jobs", "1", "--json", "-")
    assert ended.code == 0, ended.err
    row: dict[str, Any] = json.loads(ended.out)
    return row


def test_the_speed_up_is_that_of_the_cycles(heddle: Command, simulated: list[str]) -> None:
    row = compared(heddle, *GEMM)
    assert (row["speedup"], row["baseline"]["mode"], row["fiber"]["mode"]) == (2.0, "simt", "fiber")


def test_all_runs_have_the_clock_of_the_baseline(heddle: Command, simulated: list[str]) -> None:
    row = compared(heddle, *GEMM)
    assert row["clock_mhz"] == row["baseline"]["clock_mhz"] == row["fiber"]["clock_mhz"]


def test_the_control_is_the_baseline_with_early_release(heddle: Command, simulated: list[str]) -> None:
    row = compared(heddle, *GEMM)
    assert row["control"]["params"]["config"].endswith("early-release")
    assert (row["speedup_over_control"], row["speedup_of_control"]) == (2.0, 1.0)


def test_a_repeated_comparison_simulates_nothing(heddle: Command, simulated: list[str]) -> None:
    first = compared(heddle, *GEMM, "--ablate")
    count = len(simulated)
    assert (compared(heddle, *GEMM, "--ablate"), len(simulated)) == (first, count)


def test_rows_from_the_store_say_what_no_measurement_checks(heddle: Command, simulated: list[str]) -> None:
    for _ in range(2):
        row = compared(heddle, "compare", "gemm", "--gpu", "h200", *SMALL)
        assert all(row[form]["unvalidated"] for form in ("baseline", "control", "fiber"))


def test_rows_from_the_store_say_what_the_baseline_lacks(heddle: Command, simulated: list[str]) -> None:
    for _ in range(2):
        row = compared(heddle, "compare", "w4a16", "--gpu", "b200", *SMALL, "--set", "implementation=mma.sync")
        assert "tcgen05" in row["baseline"]["baseline_note"]


def test_a_choice_among_todays_kernels_is_of_the_baseline_alone(heddle: Command, simulated: list[str]) -> None:
    row = compared(heddle, "compare", "w4a16", "--gpu", "h100", *SMALL, "--set", "implementation=wgmma")
    used = [row[form]["params"]["implementation"] for form in ("baseline", "fiber")]
    assert (used, simulated.count("fiber") > 0) == (["wgmma", "auto"], True)


def test_a_timeline_of_a_sequence_is_refused_before_anything_runs(
    heddle: Command, simulated: list[str], tmp_path: Path
) -> None:
    ended = heddle("compare", "decode_attention", "--gpu", "a100", "--trace", str(tmp_path / "x.pftrace"))
    assert (ended.code, simulated) == (2, [])
    assert "a timeline is of one launch" in ended.err


def test_a_step_without_a_kernel_is_absent_with_the_reason(
    heddle: Command, simulated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    native = registry.KERNELS["gemm"].native
    monkeypatch.setitem(native, "sm_100", dataclasses.replace(native["sm_100"], instead=()))
    row = compared(heddle, "compare", "gemm", "--gpu", "b200", *SMALL, "--ablate")
    steps = {step["features"]: step for step in row["ablation"]}
    assert steps["+DP"]["speedup"] is None
    assert "runs without fine_scheduling" in steps["+DP"]["absent"]
    assert steps["+DP +FS +RS"]["speedup"] == 2.0


def test_without_a_native_kernel_the_baseline_stands_alone(heddle: Command, simulated: list[str]) -> None:
    row = compared(heddle, "compare", "attention_fa2", "--gpu", "a100", "--set", "seqlen_q=512")
    assert (row["fiber"], row["speedup"]) == (None, None)
    assert "no kernel of mode fiber" in row["absent"]["fiber"]
    assert "operands of HMMA come from registers" in row["absent"]["control"]


@pytest.mark.parametrize(
    ("kernel", "params", "speedup"),
    [
        ("attention", {}, 1.57),
        ("attention", {"heads_kv": "2"}, 1.5),
        ("attention", {"heads_kv": "1"}, 1.51),
        ("attention", {"seqlen_q": "2048"}, None),
        ("gemm", dict.fromkeys("mnk", "4096"), 1.0),
        pytest.param("gemm", {**dict.fromkeys("mnk", "4096"), "epilogue": "silu_mul"}, None, marks=pytest.mark.slow),
    ],
)
def test_the_papers_figure_stands_where_the_paper_has_one(
    heddle: Command, simulated: list[str], kernel: str, params: dict[str, str], speedup: float | None
) -> None:
    texts = [part for name, value in params.items() for part in ("--set", f"{name}={value}")]
    row = compared(heddle, "compare", kernel, "--gpu", "h100", *texts)
    assert row["paper"].get("speedup") == speedup


def test_the_tables_name_runs_steps_and_result(heddle: Command, simulated: list[str]) -> None:
    out = heddle(*GEMM, "--ablate", "--jobs", "1").out
    assert all(text in out for text in ("baseline", "control", "fiber", "+DP literal", "FIBER 2.00x"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", "gemm"), "compare needs a kernel and --gpu G, or --all"),
        (("compare", "--all", "gemm"), "--all takes no kernel"),
        (("compare", "--all", "--gpu", "h10"), "--all compares on a100, h100, b200; got 'h10'"),
        ((*GEMM, "--set", "tile_n=128"), "unknown parameter of gemm 'tile_n'"),
        (("compare", "ffn", "--gpu", "h100", "--set", "gate_up.tile_n=64"), "compare takes no pins"),
        ((*GEMM, "--trace", "-"), "--trace writes a binary file"),
        ((*GEMM, "--markdown", "-"), "--markdown writes the tables of --all"),
    ],
)
def test_bad_use_is_one_message(
    heddle: Command, simulated: list[str], arguments: tuple[str, ...], message: str
) -> None:
    ended = heddle(*arguments)
    assert (ended.code, ended.out, message in ended.err) == (2, "", True)


def test_oracles_and_switches_stand_beside_what_others_publish(heddle: Command, simulated: list[str]) -> None:
    ended = heddle("compare", "attention", "--gpu", "h100", "--oracle", "--jobs", "1", "--set", "batch=1")
    assert ended.code == 0, ended.err
    for text in ("Oracles", "1.21x", "1.18x", "1.10x", "Switched off", "35.44 %"):
        assert text in ended.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--oracle", "dq"), "unknown oracle 'dq'"),
        (("--off", "bariers"), "did you mean"),
        (("--oracle", "dp,"), "empty name"),
        (("--oracle", "dp,dp"), "twice"),
        (("--oracle", "dp", "--off", "order"), "two studies"),
        (("--oracle", "dp", "--mode", "fiber"), "not about mode fiber"),
    ],
)
def test_oracles_that_mean_nothing_are_refused(heddle: Command, arguments: tuple[str, ...], message: str) -> None:
    ended = heddle("run", "gemm", "--gpu", "h100", *SMALL, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err


def test_what_is_idealised_is_in_the_result(heddle: Command, simulated: list[str]) -> None:
    row = compared_run(heddle, "--oracle", "fs,dp")
    assert (row["ideal"]["oracle"], row["ideal"]["speedup"]) == (["dp", "fs"], 1.0)


def compared_run(heddle: Command, *arguments: str) -> dict[str, Any]:
    ended = heddle("run", "gemm", "--gpu", "h100", *SMALL, *arguments, "--json", "-")
    assert ended.code == 0, ended.err
    row: dict[str, Any] = json.loads(ended.out)
    return row


def test_without_matrix_products_dram_stands_in_place_of_a_ceiling(heddle: Command, result_cache: Path) -> None:
    arguments = ("compare", "rmsnorm", "--gpu", "a100", "--set", "rows=256", "--set", "hidden=1024", "--jobs", "1")
    out = heddle(*arguments).out
    assert "no ceiling: no matrix products; the baseline keeps DRAM" in out
    assert "the paper" not in out


def test_what_moves_data_only_is_compared_on_the_whole_chip(heddle: Command, result_cache: Path) -> None:
    row = compared(heddle, "compare", "rmsnorm", "--gpu", "a100", "--set", "rows=256", "--set", "hidden=1024")
    assert (row["ceiling_speedup"], row["baseline"]["simulation"]["mode"]) == (None, "chip")


class Killed(BaseException):
    """What no line of the table catches."""


def test_a_table_that_is_killed_goes_on_where_it_was(
    heddle: Command, simulated: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ended within its second line, it simulates the rest the next time, and then nothing any more."""
    sizes = [(("m", 512), ("n", side), ("k", 512)) for side in (256, 512, 1024)]
    cases = [Case(name=f"gemm {n}", kernel="gemm", machine=load("a100"), params=size) for n, size in enumerate(sizes)]
    monkeypatch.setattr(compare_all, "all_cases", lambda gpu: iter(cases))
    table = ("compare", "--all", "--jobs", "1", "--json", "-")
    monkeypatch.setenv("HEDDLE_CACHE", str(tmp_path / "undisturbed"))
    whole = json.loads(heddle(*table).out)
    in_all = len(simulated)
    simulated.clear()

    answers = pipeline.run_once

    def killed(*arguments: Any, **options: Any) -> dict[str, Any]:
        if len(simulated) == in_all // 2:
            raise Killed
        return answers(*arguments, **options)

    monkeypatch.setenv("HEDDLE_CACHE", str(tmp_path / "killed"))
    monkeypatch.setattr(pipeline, "run_once", killed)
    with pytest.raises(Killed):
        compare_all.compare_all(jobs=1)
    monkeypatch.setattr(pipeline, "run_once", answers)
    for _ in range(2):
        assert json.loads(heddle(*table).out) == whole
        assert len(simulated) == in_all


def test_the_tables_go_into_a_page_and_a_page_without_room_is_refused_before_anything_runs(
    heddle: Command, simulated: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    size = (("m", 512), ("n", 512), ("k", 512))
    case = Case(name="gemm 512", kernel="gemm", machine=load("a100"), params=size)
    monkeypatch.setattr(compare_all, "all_cases", lambda gpu: iter([case]))
    page = tmp_path / "page.md"
    page.write_text("text without marks")
    refused = heddle("compare", "--all", "--markdown", str(page))
    assert (refused.code, simulated, page.read_text()) == (2, [], "text without marks")
    page.unlink()
    assert heddle("compare", "--all", "--jobs", "1", "--markdown", str(page)).code == 0
    assert "| gemm 512 | 2.00 |" in page.read_text()
