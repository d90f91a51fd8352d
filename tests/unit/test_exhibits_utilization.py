"""Does the study of FIBER's features put each step, its counters and its part of the gain beside the paper's?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from heddle import pipeline
from heddle.errors import UserError
from heddle.machine import machine
from heddle.report.exhibits import utilization as view
from heddle.report.exhibits.views import draw_all
from heddle.study.ablation import Ablation, Form, parts_of_gain
from heddle.study.compare_all import WORKLOADS, Case
from heddle.study.exhibits import utilization
from heddle.study.exhibits.registry import EXHIBITS
from heddle.study.exhibits.utilization import GPUS, study, workloads
from heddle.study.features import STEPS
from heddle.study.paper import ablation_figures
from heddle.study.requests import request


def result(cycles: int) -> dict[str, Any]:
    """A result of so many cycles."""
    return {
        "cycles": cycles, "params": {"config": "tile"}, "tensor_utilization": 0.5, "occupancy": 0.25,
        "pipes": {"tensor": 0.75, "sfu": 0.5, "fp32": 0.25, "fma": 0.25}, "issue_utilization": 0.125,
        "stalls": {"issued": 0.25, "mbarrier": 0.75}, "notes": ["a step runs as today"],
    }  # fmt: skip


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Attention of MQA on H100, whose second step has no kernel, and a workload that fails."""

    def ran(kernel: str, target: Any, params: Any) -> Ablation:
        if kernel == "gemm":
            raise UserError("too small\nmore")
        cycles = (None, 800, 640, 500)
        forms = (
            Form(s, result(c) if c else None, "" if c else "no kernel") for s, c in zip(STEPS, cycles, strict=True)
        )
        return Ablation(result(1000), tuple(forms))

    monkeypatch.setattr(utilization, "ablation", ran)
    cases = [case for case in workloads("h100") if "MQA" in case.name or case.kernel == "gemm"]
    return study(cases, jobs=1)


def test_every_workload_of_the_paper_is_there_on_every_gpu() -> None:
    for gpu in GPUS:
        names = [case.name for case in workloads(gpu)]
        assert {name for name, _, _ in WORKLOADS} - set(names) == {"backward MHA causal B1"}
        assert sum("attention" in name for name in names) == len(("MHA", "GQA", "MQA"))


def test_a_row_has_the_speed_up_and_counters_of_each_step_and_why_one_is_absent(rows: list[dict[str, Any]]) -> None:
    [row] = [row for row in rows if "forms" in row]
    assert [form["speedup"] for form in row["forms"]] == [None, 1.25, 1.5625, 2.0]
    assert [form["absent"] for form in row["forms"]] == ["no kernel", "", "", ""]
    assert row["baseline"]["stalls"]["synchronisation"] == 0.75
    assert row["baseline"]["pipes"] == {"tensor": 0.75, "sfu": 0.5, "fma": 0.25}


def test_a_workload_that_fails_is_a_row_with_the_reason(rows: list[dict[str, Any]]) -> None:
    assert [row["failed"] for row in rows if "failed" in row] == ["too small"]


def test_parts_of_the_gain_add_up_to_one() -> None:
    parts = parts_of_gain({"+DP": 1.25, "+DP +FS": 1.5625, "+DP +FS +RS": 2.0})
    assert parts == {"DP": 0.25, "FS": 0.3125, "RS": 0.4375}


@pytest.mark.parametrize("speedup", [
    {"+DP": 1.0, "+DP +FS": 1.0, "+DP +FS +RS": 1.01},
    {"+DP": 1.0, "+DP +FS": 0.9, "+DP +FS +RS": 0.8},
])  # fmt: skip
def test_without_a_gain_there_are_no_parts(speedup: dict[str, float]) -> None:
    assert parts_of_gain(speedup) == {"DP": None, "FS": None, "RS": None}


def test_what_a_missing_step_adds_is_not_made_up() -> None:
    assert parts_of_gain({"+DP +FS +RS": 1.5}) == {"DP": None, "FS": None, "RS": None}
    assert parts_of_gain({"+DP +FS": 1.25, "+DP +FS +RS": 1.5}) == {"DP": None, "FS": None, "RS": 0.5}


def test_a_step_of_which_launches_run_as_today_says_nothing_of_its_features(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [result(cycles) for cycles in (900, 800, 700, 500)]
    rows[2]["notes"].append("step gate_up has no FIBER-native kernel without registers shared: it runs as today")
    forms = tuple(Form(step, row) for step, row in zip(STEPS, rows, strict=True))
    monkeypatch.setattr(utilization, "ablation", lambda *asked: Ablation(result(1000), forms))
    [row] = study(workloads("a100")[:1], jobs=1)
    assert [form["in_part"] for form in row["forms"]] == [False, False, True, False]
    assert row["parts_of_gain"] == {"DP": pytest.approx(0.25), "FS": None, "RS": None}
    assert view._speedup(row["forms"][2]) == "1.43x in part"


@pytest.mark.parametrize(("kernel", "params", "stated"), [
    ("ffn", {"model": "llama-3-8b", "tokens": 4096}, {"FS": 0.69}),
    ("ffn", {"model": "llama-3-8b", "tokens": 4096, "weights": "awq"}, {}),
    ("w4a16", {"m": 4096, "n": 4096, "k": 4096, "scheme": "aqlm_2x8"}, {"FS": 0.33}),
    ("attention", {"heads_q": 32, "heads_kv": 1, "seqlen_q": 4096, "head_dim": 128}, {"RS": 0.8}),
])  # fmt: skip
def test_the_papers_parts_stand_beside_its_workloads(
    kernel: str, params: dict[str, Any], stated: dict[str, float]
) -> None:
    found = ablation_figures(kernel, "sm_90", request(kernel, "h100", texts=params).params)
    assert {name: share for name, share in found.items() if name != "where"} == stated


def test_where_the_paper_has_words_alone_no_number_is_printed() -> None:
    stated = ablation_figures("projection", "sm_90", request("projection", "h100").params)
    assert (set(stated), view._paper(stated)) == ({"words", "where"}, stated["words"])
    assert not any(letter.isdigit() for letter in stated["words"])


def test_the_tables_and_the_picture_show_steps_reasons_and_the_paper(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    exhibit = EXHIBITS["utilization"]
    answer = {"name": exhibit.name, "title": exhibit.title, "where": exhibit.where, "rows": rows}
    console = Console(width=260)
    with console.capture() as shown:
        console.print(view.show(answer))
    text = shown.get()
    assert all(
        part in text for part in ("1.56x", "43.8 %", "RS 80.0 %", "no kernel", "a step runs as today", "too small")
    )
    [file] = draw_all([answer], tmp_path)
    assert "attention MQA" in file.read_text(encoding="utf-8")


@pytest.mark.slow
def test_steps_that_are_stored_are_not_simulated_again(result_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Case(name="gemm", kernel="gemm", machine=machine("a100"), params=(("m", 64), ("n", 64), ("k", 128)))
    [before] = study([small], jobs=1)

    def fails(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("simulated again")

    monkeypatch.setattr(pipeline, "run_once", fails)
    assert study([small], jobs=1) == [before]
    absent = {form["features"]: form["absent"] for form in before["forms"]}
    assert not any(absent.values())


def row_of(gpu: str, cycles: tuple[int | None, ...], absent: str) -> dict[str, Any]:
    forms = [
        {"features": step.name, "absent": "" if count else f"{absent} ({gpu}+{step.short})", "speedup": count and 1.0}
        | ({} if count is None else utilization.counters(result(count)))
        for step, count in zip(STEPS, cycles, strict=True)
    ]
    baseline = utilization.counters(result(1000))
    return {"workload": "w", "gpu": gpu, "baseline": baseline, "forms": forms, "parts_of_gain": {}, "paper": {}}


def test_a_reason_stands_once_with_all_that_it_is_about() -> None:
    rows = [row_of(gpu, (None, None, 800, 800), "no kernel") for gpu in ("a100", "b200")]
    found = [text for text in view._reasons(rows) if "no kernel" in text]
    assert found == ["+DP literal: w (a100), w (b200); +DP: w (a100), w (b200): no kernel"]


def test_steps_that_change_nothing_share_a_line() -> None:
    table = view._counters([row_of("a100", (None, 900, 800, 800), "no kernel")])
    assert list(table.columns[2].cells) == ["baseline", "+DP", "+DP +FS; +DP +FS +RS"]
