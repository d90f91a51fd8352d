"""Are the tables of all comparisons whole as Markdown?"""

from typing import Any

import pytest

from heddle.report.comparison_markdown import document


def compared(case: str, gpu: str, speedup: float | None, **more: Any) -> dict[str, Any]:
    """A comparison of 1,000 cycles today."""
    base = {"cycles": 1000, "tensor_utilization": 0.5, "unvalidated": "", "baseline_note": ""}
    fiber = None if speedup is None else {"cycles": round(1000 / speedup), "tensor_utilization": 0.75}
    limit = {"text": "tensor 90.0 %", "paper": "", "no_gain": ""}
    row = {"case": case, "gpu": gpu, "baseline": base, "control": None, "fiber": fiber, "speedup": speedup}
    return {
        **row,
        "speedup_over_control": None,
        "ceiling_speedup": 2.0,
        "paper": {},
        "limit": limit,
        "steps": [],
        **more,
    }


def step(name: str, baseline: int | None, fiber: int | None, note: str = "") -> dict[str, Any]:
    """A launch of a sequence: half of the time, where it is there."""
    figures = {"baseline_cycles": baseline, "baseline_share": 0.5, "fiber_cycles": fiber, "fiber_share": 0.5}
    return {"name": name, "note": note, "speedup": baseline / fiber if baseline and fiber else None, **figures}


def lines_of(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def test_a_workload_has_one_short_line_for_all_gpus() -> None:
    rows = [compared("FFN", "a100", 1.25, paper={"speedup": 1.1}), compared("FFN", "b200", None)]
    assert lines_of(document(rows), "| FFN |")[0] == "| FFN | 1.25 | 1.10 | absent |  |"


def test_a_line_of_a_machine_has_cycles_use_ceiling_and_remarks() -> None:
    limit = {"text": "tensor 90.0 %", "paper": "above the ceiling", "no_gain": "no mapping"}
    row = compared("FFN", "a100", 0.8, limit=limit, steps=[step("down", 1000, 1000, "has no kernel")])
    assert lines_of(document([row]), "| FFN | 1,000") == [
        "| FFN | 1,000 | 50.0 % | 1,250 | 75.0 % | 0.80 | 2.00 |  | tensor 90.0 % | off the paper: above the ceiling; "
        "no mapping; no FIBER form, so as today: down |"
    ]


def test_a_control_has_its_columns() -> None:
    row = compared("MHA", "h100", 1.25, control={"cycles": 900, "tensor_utilization": 0.6}, speedup_over_control=1.125)
    [line] = lines_of(document([row]), "| MHA | 1,000")
    assert line.startswith("| MHA | 1,000 | 50.0 % | 900 | 800 | 75.0 % | 1.25 | 1.12 | 2.00 |")


def test_where_fiber_does_not_win_the_tables_say_so() -> None:
    text = document([compared("x", "a100", 0.9), compared("y", "h100", 1.0), compared("z", "h100", 1.1)])
    assert "No searched mapping beats today's kernels here: a100: x; h100: y." in text


def test_what_nothing_validates_is_marked_wherever_its_number_stands() -> None:
    base = {"cycles": 1000, "tensor_utilization": 0.5, "unvalidated": "nobody measured it", "baseline_note": "old"}
    text = document([compared("x", "a100", 1.5, baseline=base), compared("y", "a100", 1.5)])
    assert lines_of(text, "| x ") == [*lines_of(text, "| x | 1.50 [1, 2] |"), *lines_of(text, "| x [1, 2] | 1,000")]
    assert "1. unvalidated: nobody measured it" in text
    assert not [line for line in lines_of(text, "| y ") if "[" in line]


@pytest.mark.parametrize(("gap", "word"), [("failed", "failed"), ("missing", "absent")])
def test_a_line_without_a_result_keeps_its_place_with_the_reason(gap: str, word: str) -> None:
    text = document([{"case": "x", "kernel": "gemm", "gpu": "a100", gap: "too large"}])
    assert lines_of(text, "| x |") == [f"| x | {word} |  |", "| x |" + "  |" * 8 + " too large |"]


def test_the_short_table_has_attention_of_the_papers_batch_alone() -> None:
    names = [f"attention MHA full B{batch}" for batch in (8, 1, 32)]
    text = document([compared(name, "a100", 1.5) for name in names])
    assert [len(lines_of(text, f"| {name} |")) for name in names] == [2, 1, 1]


def test_other_rates_of_a_memory_have_a_table_but_no_column() -> None:
    text = document([compared("x", "h100", 1.5), compared("x", "h100 L2 35 B", 1.5)])
    assert "| workload | h100 | paper |" in text
    assert "**h100 L2 35 B**" in text


def test_launches_of_a_sequence_stand_below_it_and_those_as_today_are_named() -> None:
    steps = [step("up", 600, 400), step("add", 50, 50, "as today"), step("clear", 10, None)]
    text = document([compared("FFN", "a100", 1.5, steps=steps), compared("x", "h100", 1.5)])
    assert lines_of(text, "| FFN | up |") == ["| FFN | up | 600 | 50.0 % | 400 | 50.0 % | 1.50 |"]
    assert lines_of(text, "| FFN | add |")[0].endswith("| 50 | 50.0 % | as today |")
    assert lines_of(text, "| FFN | clear |")[0].endswith("| absent |  |  |")
    assert "Launches of sequences on h100" not in text


def test_where_dram_is_busier_than_tensor_cores_it_is_the_ceiling() -> None:
    base = {"cycles": 1000, "tensor_utilization": 0.1, "speed_of_light": [{"name": "DRAM Throughput", "value": 80.0}]}
    [line] = lines_of(document([compared("x", "a100", 1.25, baseline=base)]), "| x | 1,000")
    assert "| 1.25 | 1.25 by DRAM |" in line
