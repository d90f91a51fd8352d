"""Do the commands keep the promises of docs/reference/cli.md: exit codes, streams, JSON, one clear message?"""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from heddle import pipeline
from heddle.kernels.gemm.shape import GemmConfig

from .conftest import Command

RUN = ("run", "gemm", "--gpu", "h100", "--set", "m=2048", "--set", "n=2048", "--set", "k=2048")
COMMANDS = ("machines", "kernels", "run", "draw", "compare", "tune", "check", "compile", "validate", "bench")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(heddle: Command, name: str) -> None:
    ended = heddle(name, "--help")
    assert (ended.code, f"Example: heddle {name}" in ended.out, "--json" in ended.out) == (0, True, True)


def test_help_imports_nothing_heavy() -> None:
    look = "[m for m in ('numpy', 'llvmlite', 'pydantic.main') if m in sys.modules]"
    code = f"import sys; from heddle.cli import main; main(['--help']); print({look})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def test_the_module_runs_as_the_command() -> None:
    run = subprocess.run([sys.executable, "-m", "heddle", "machines"], capture_output=True, text=True, check=True)
    assert "h100" in run.stdout


BAD_USE = [
    (("run", "gem", "--gpu", "h100"), "hint: did you mean 'gemm'?"),
    (("run", "gemm", "--gpu", "h10"), "unknown machine 'h10'"),
    (("run", "gemm", "--gpu", "h100", "--set", "mm=5"), "unknown parameter of gemm 'mm'; allowed: "),
    (("run", "gemm", "--gpu", "h100", "--set", "m"), "--set 'm' is not of the form name=value"),
    (("run", "gemm", "--gpu", "h100", "--set", "m=1", "--set", "m=2"), "--set gives 'm' twice: 1 and 2"),
    (("run", "gemm", "--gpu", "h100", "--set", "m=0"), "parameter 'm' (rows of A and C) must be at least 1, got 0"),
    (("run", "gemm", "--gpu", "h100", "--set", "m=1.5"), "parameter 'm' must be a whole number, got '1.5'"),
    (("run", "gemm", "--gpu", "h100", "--set", "tile_n=wide"), "parameter 'tile_n' must be a whole number, got 'wide'"),
    (("run", "gemm", "--gpu", "h100", "--mode", "fibre"), "unknown mode 'fibre'; allowed: cuda-native, fiber, simt"),
    (("run", "gemm", "--gpu", "h100", "--l2", "hot"), "unknown L2 state 'hot'; allowed: cold, flushed, warm"),
    (("run", "gemm", "--gpu", "h100", "--clock-mhz", "9000"), "a clock of 9000 MHz is not possible"),
    (("run", "gemm", "--gpu", "h100", "--clock-mhz", "1e-300"), "a clock of 1e-300 MHz is not possible"),
    (("run", "gemm", "--gpu", "h100", "--json", "absent/x.json"), "the folder "),
    (
        ("run", "gemm", "--gpu", "a100", "--set", "cluster=2"),
        "clusters of 2 CTAs are not supported by gemm on a100; use 1\n",
    ),
    (("run", "gemm", "--gpu", "b200", "--set", "cluster=4"), "not supported by gemm on b200; use 1 or 2\n"),
    (("run", "gemm", "--gpu", "a100", "--set", "tile_k=48"), "a multistage tile_k is one of 32, 64, 128, 256; got 48"),
    (("run", "gemm", "--gpu", "h100", "--set", "warps=2x2"), "the warps of a "),
    (("run", "gemm", "--gpu", "h100", "--set", "cluster_side=q"), "cluster_side must be m or n, got 'q'"),
    (("run", "gemm", "--gpu", ""), "unknown machine ''"),
    (("check", "gemm", "--gpu", "h100", "--seed", "-1"), "the seed must be at least 0, got -1"),
    (("validate", "--jobs", "0"), "'--jobs'"),
    (("validate", "--suite", "micro", "--kernel", "gemm"), "--kernel gemm has no meaning for the micro suite"),
    (("machines", "none.toml"), "there is no machine file 'none.toml'"),
    (("validate", "--suite", "macro"), "unknown suite 'macro'; allowed: kernels, micro"),
    (("validate", "--cases", "absent.csv"), "cannot read the cases file 'absent.csv'"),
    (("validate", "--kernel", "gem"), "no case of kernel gem on any GPU"),
    (("validate", "--max-mean-error", "-1"), "--max-mean-error -1.0 must be positive"),
    (("run", "gemm"), "Missing option '--gpu'"),
    (("weave",), "No such command 'weave'"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_USE, ids=[" ".join(a) for a, _ in BAD_USE])
def test_bad_use_is_one_message_and_exit_code_2(
    heddle: Command,
    fake_pipeline: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = heddle(*arguments)
    assert (ended.code, ended.out, "Traceback" in ended.err) == (2, "", False)
    assert message in ended.err
    assert [p for p in tmp_path.iterdir() if p.name != "cache"] == []


def test_a_tile_that_does_not_fit_shared_memory_is_refused(heddle: Command) -> None:
    ended = heddle(*RUN, "--set", "tile_m=128", "--set", "tile_n=256", "--set", "stages=40")
    assert (ended.code, "bytes of shared memory" in ended.err, ended.out) == (2, True, "")


def test_an_unexpected_exception_asks_for_a_report(
    heddle: Command, fake_pipeline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(pipeline, "run_once", broken)
    ended = heddle(*RUN)
    assert (ended.code, ended.out, "Traceback" in ended.err) == (1, "", False)
    assert "internal error: ZeroDivisionError: by zero at " in ended.err
    assert "please report it" in ended.err


def test_json_to_standard_output_is_nothing_but_json(heddle: Command, fake_pipeline: None) -> None:
    ended = heddle(*RUN, "--json", "-")
    assert json.loads(ended.out)["kernel"] == "gemm"
    assert ended.err == ""


def test_json_to_a_file_keeps_the_text_output(heddle: Command, fake_pipeline: None, tmp_path: Path) -> None:
    ended = heddle(*RUN, "--json", str(tmp_path / "r.json"))
    assert "TFLOP/s" in ended.out
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["gpu"] == "h100"


def test_the_fastest_candidate_is_chosen(heddle: Command, fake_pipeline: None) -> None:
    row = json.loads(heddle(*RUN, "--json", "-").out)
    assert row["choice"]["cycles"][row["params"]["config"]] == min(row["choice"]["cycles"].values())


def test_a_pinned_tile_is_kept(heddle: Command, fake_pipeline: None) -> None:
    row = json.loads(heddle(*RUN, "--set", "tile_n=256", "--json", "-").out)
    assert "x256x" in row["params"]["config"]


def test_one_set_may_name_several_parameters(heddle: Command, fake_pipeline: None) -> None:
    ended = heddle("run", "gemm", "--gpu", "h100", "--set", "m=2048", "n=1024", "k=2048", "--json", "-")
    assert json.loads(ended.out)["params"]["n"] == 1024


def test_a_given_clock_is_used(heddle: Command, fake_pipeline: None) -> None:
    row = json.loads(heddle(*RUN, "--clock-mhz", "1500", "--json", "-").out)
    assert (row["clock_mhz"], row["provenance"]["clock_source"]) == (1500, "given")


def test_without_a_clock_the_clock_model_decides(heddle: Command, fake_pipeline: None) -> None:
    row = json.loads(heddle(*RUN, "--json", "-").out)
    assert row["provenance"]["clock_source"] == "clock model"
    assert 1000 < row["clock_mhz"] < 1980


@pytest.mark.parametrize(("limit", "code"), [("10", 0), ("0.000001", 1)])
def test_a_mean_error_above_the_limit_fails(heddle: Command, fake_pipeline: None, limit: str, code: int) -> None:
    arguments = (
        "validate",
        "--kernel",
        "gemm",
        "--gpu",
        "b200",
        "--jobs",
        "1",
        "--no-left-out",
        "--max-mean-error",
        limit,
    )
    assert heddle(*arguments).code == code


def test_validation_has_the_fields_of_the_reference(heddle: Command, fake_pipeline: None) -> None:
    row = json.loads(heddle("validate", "--gpu", "b200", "--jobs", "1", "--json", "-").out)
    assert {"mean_abs_error", "max_abs_error", "bias", "pearson", "groups", "worst", "not_modelled", "fitted"} <= set(
        row
    )
    assert {"case_id", "measured", "simulated", "unit", "error"} <= set(row["cases"][0])


def test_a_case_without_a_kernel_is_reported_not_dropped(heddle: Command, fake_pipeline: None, tmp_path: Path) -> None:
    cases = tmp_path / "mine.csv"
    cases.write_text("case_id,gpu,kernel,m,n,k,measured,unit\nx-1,h100,syrk,1024,1024,1024,9,us\n", encoding="utf-8")
    row = json.loads(heddle("validate", "--cases", str(cases), "--jobs", "1", "--json", "-").out)
    (absent,) = row["not_modelled"]
    assert (absent["case_id"], absent["why"].partition(";")[0]) == ("x-1", "unknown kernel 'syrk'")


def test_machines_name_unit_kind_and_source_of_every_value(heddle: Command) -> None:
    values = json.loads(heddle("machines", "a100", "--json", "-").out)["values"]
    assert [v["field"] for v in values if not (v["unit"] and v["kind"] and v["source"])] == []


def test_kernels_list_the_machines_that_run_them(heddle: Command) -> None:
    row = json.loads(heddle("kernels", "gemm", "--json", "-").out)
    assert {"a100", "h100", "b200"} <= set(row["machines"])


def test_a_fiber_kernel_without_parameters_of_its_own_has_no_table_of_them(heddle: Command) -> None:
    assert "in mode fiber on" in heddle("kernels", "gemm").out
    assert "in mode fiber on" not in heddle("kernels", "decode_split").out


def test_kernels_tell_the_form_of_every_parameter(heddle: Command) -> None:
    out = heddle("kernels", "gemm").out
    assert "whole numbers joined by x" in out
    fields = {field["name"] for field in json.loads(heddle("kernels", "gemm", "--json", "-").out)["tile"]}
    assert fields == {field.name for field in dataclasses.fields(GemmConfig)}


def test_one_sm_is_enough(heddle: Command, fake_pipeline: None, tmp_path: Path) -> None:
    for gpu in ("a100", "h100", "b200"):
        file = tmp_path / f"{gpu}.toml"
        file.write_text(f'inherits = "{gpu}"\nsms = 1\n', encoding="utf-8")
        assert heddle("run", "gemm", "--gpu", str(file), "--set", "m=256", "--set", "n=256").code == 0
