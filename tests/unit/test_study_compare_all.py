"""Does the table of all comparisons begin with what counts, and keep going when a line fails?"""

from typing import Any

import pytest

from heddle.errors import UserError
from heddle.study import compare_all as table
from heddle.study.compare_all import all_cases, compare_all


def test_the_papers_setting_comes_first_and_the_largest_batch_last() -> None:
    batches = [dict(case.params).get("batch") for case in all_cases("a100") if case.kernel == "attention"]
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
    assert [row.get("failed") for row in rows[:2]] == [None, "too large"]
    assert len(rows) == len(list(all_cases("a100")))
