"""Do results render for people, from plain data, with what matters first?"""

from __future__ import annotations

import io
import json
from typing import Any

import interp_logs as tiny
from rich.console import Console, RenderableType

from heddle.machine import machine
from heddle.metrics import diff, render, result_json


def document(**timing: int) -> dict[str, Any]:
    """A result as it comes back from a file."""
    result = tiny.result(tiny.run(**timing))
    loaded: dict[str, Any] = json.loads(
        json.dumps(result_json(result, tiny.program(), machine("h100"), profile=True, clock_mhz=1755.0))
    )
    return loaded


def text(renderable: RenderableType) -> str:
    """What a wide terminal without colours shows."""
    console = Console(width=200, no_color=True, record=True, file=io.StringIO())
    console.print(renderable)
    return console.export_text()


def test_report_holds_every_section() -> None:
    shown = text(render.report(document()))
    for part in (
        "tiny_gemm on h100",
        "Speed of light",
        "Roofline",
        "How busy",
        "Where the warp cycles go",
        "Source lines",
        "Synchronisation: ",
    ):
        assert part in shown


def test_figures_of_the_paper_stand_below_the_profile() -> None:
    figure = {"share": 0.26, "what": "CPI in synchronisation", "where": "Fig. 2(b)"}
    lines = text(render.report({**document(), "paper": {"synchronisation": figure}})).splitlines()
    assert lines[-1].rstrip() == "The paper: 26.0 % (CPI in synchronisation; Fig. 2(b))."


def test_stall_table_starts_with_issued_and_hides_what_never_happens() -> None:
    lines = [line for line in text(render.stall_table(document())).splitlines() if "%" in line]
    assert lines[0].split()[1] == "issued"
    assert not any("semaphore" in line for line in lines)


def test_line_table_names_the_line_and_the_reason() -> None:
    shown = text(render.line_table(document(), top=1))
    assert "gemm.py:16" in shown
    assert "mbarrier" in shown


def test_diff_table_shows_only_what_changed() -> None:
    a = document()
    shown = text(render.diff_table(diff(a, document(copy_latency=600)), "fast", "slow"))
    assert "cycles" in shown
    assert "traffic.dram_bytes" not in shown
    assert len([line for line in text(render.diff_table(diff(a, a))).splitlines() if "│" in line]) == 0


def test_verdict_names_the_largest_stall() -> None:
    assert "largest stall reasons: mbarrier" in document()["verdict"]


def test_register_table_tells_how_many_instructions_have_many_registers_live() -> None:
    found = document()
    role = next(iter(found["registers"]["by_role"]))
    found["registers"]["live_profile"][role] = {"128": 0.5, "160": 0.25}
    row = next(line for line in text(render.register_table(found)).splitlines() if role in line)
    assert row.replace("│", " ").split()[-6:] == ["50.0", "%", "25.0", "%", "0.0", "%"]
