"""Does the table of all comparisons begin with what counts, and keep going when a line fails?"""

from typing import Any

import pytest

from heddle.errors import UserError
from heddle.report.comparison import overview, reasons
from heddle.study import compare_all as table
from heddle.study.compare_all import all_cases, compare_all


def test_the_papers_setting_comes_first_and_the_largest_batch_last() -> None:
    batches = [dict(case.params).get("batch") for case in all_cases("a100") if case.name.startswith("attention")]
    assert batches == [8] * 6 + [1] * 6 + [32] * 6


def test_h100_is_also_compared_with_other_rates_of_l2() -> None:
    rates = dict.fromkeys(case.machine.l2_bytes_per_cycle_per_sm for case in all_cases("h100"))
    assert [rate for rate in rates if rate in (35.0, 42.0)] == [35.0, 42.0]


def test_a_line_that_fails_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(kernel: str, machine: Any, **options: Any) -> dict[str, Any]:
        if options["texts"].get("causal"):
            raise UserError("too large\nmore")
        return {"kernel": kernel}

    monkeypatch.setattr(table, "compare", compare)
    rows = compare_all("a100", jobs=1)
    assert not [row for row in rows if "missing" in row]
    assert [row.get("failed") for row in rows[:2]] == [None, "too large"]
    assert len(rows) == len(list(all_cases("a100")))


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_every_workload_of_the_paper_has_a_line_once(gpu: str) -> None:
    plain = [case.name for case in all_cases(gpu) if case.machine.name == gpu]
    for name in ("projection", "FFN", "mixed FFN", "AWQ 4096", "AQLM 1x16 4096", "AQLM 2x8 4096", "decode GQA B16",
                 "backward MHA full B1", "backward MHA causal B1", "Llama FP16", "Llama W4A16",
                 "attention GQA full B8", "attention MQA full B8", "attention MHA full B8", "gemm 4096"):  # fmt: skip
        assert plain.count(name) == 1
    assert len({(case.kernel, case.machine.name, case.params) for case in all_cases(gpu)}) == len([*all_cases(gpu)])


def test_a_workload_that_is_not_there_for_a_gpu_keeps_its_place_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(*args: Any, **options: Any) -> None:
        raise UserError("the backward pass is not modelled\nmore")

    monkeypatch.setattr(table, "request", missing)
    row = compare_all("b200", jobs=1)[0]
    assert (row["case"], row["missing"]) == ("attention MHA full B8", "the backward pass is not modelled")
    assert "absent" in str(list(overview([row]).columns[2].cells))
    assert "not modelled" in str(list(reasons([row]).columns[2].cells))


@pytest.mark.parametrize(("notes", "said"), [
    (["", ""], ["limit"]),
    (["as today", ""], ["no FIBER form, so as today: a; limit"]),
])  # fmt: skip
def test_launches_without_a_fiber_form_are_named(notes: list[str], said: list[str]) -> None:
    steps = [{"name": name, "note": note} for name, note in zip("ab", notes, strict=True)]
    limit = {"text": "limit", "paper": "", "no_gain": ""}
    row = {"case": "x", "kernel": "llama", "gpu": "h100", "steps": steps, "limit": limit}
    assert list(reasons([row]).columns[2].cells) == said
