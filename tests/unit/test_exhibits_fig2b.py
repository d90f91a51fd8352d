"""Is the CPI stack made of every state once, weighted as it says, with the paper's share beside where it has one?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from heddle.report.exhibits import fig2b as view
from heddle.report.exhibits.views import draw_all
from heddle.sim.result import Stall
from heddle.study import runs
from heddle.study.exhibits.fig2b import GROUPS, KERNELS, by_issue, stack, stacks
from heddle.study.exhibits.registry import EXHIBITS

RESULT: dict[str, Any] = {
    "stalls_by_role": {"load": {"issued": 0.1, "mbarrier": 0.9}, "compute": {"issued": 0.5, "gmma": 0.5}},
    "instructions": {"by_role": {"load": 10, "compute": 90}},
}
SMALL = {"batch": 1, "heads_q": 1, "heads_kv": 1, "seqlen_q": 512, "head_dim": 128}


def test_every_state_is_in_one_group() -> None:
    states = [state for group in GROUPS.values() for state in group]
    assert sorted(states) == sorted(Stall)


def test_roles_weigh_as_much_as_they_issue() -> None:
    shares = by_issue(RESULT)
    assert shares["mbarrier"] == pytest.approx(0.09)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_the_cpi_is_warp_cycles_an_issued_instruction() -> None:
    found = stack({"issued": 0.25, "barrier": 0.5, "gmma": 0.25})
    assert found["cpi"] == 4
    assert (found["shares"]["synchronisation"], found["shares"]["products"]) == (0.5, 0.25)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The rows of three runs that end at once."""
    total = {"issued": 0.25, "mbarrier": 0.5, "gmma": 0.25}
    result = {**RESULT, "params": {"config": "tile"}, "cycles": 1000, "tensor_utilization": 0.5, "stalls": total}
    monkeypatch.setattr(runs, "run", lambda asked: result)
    return stacks(SMALL, jobs=1)


def test_stacks_sum_to_one(rows: list[dict[str, Any]]) -> None:
    assert [row["kernel"] for row in rows] == list(KERNELS)
    for row in rows:
        for weighting in ("all", "by_issue"):
            assert sum(row[weighting]["shares"].values()) == pytest.approx(1.0)


def test_only_flashattention_4_has_a_share_of_the_paper(rows: list[dict[str, Any]]) -> None:
    assert [row["paper"].get("share") for row in rows] == [None, None, 0.26]


def test_the_table_and_the_picture_show_the_papers_share(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    exhibit = EXHIBITS["fig2b"]
    answer = {"name": exhibit.name, "title": exhibit.title, "where": exhibit.where, "params": SMALL, "rows": rows}
    console = Console(width=220)
    with console.capture() as shown:
        console.print(view.show(answer))
    assert shown.get().count("26.0 %") == len(view.VIEWS)
    [file] = draw_all([answer], tmp_path)
    assert "synchronisation in the paper" in file.read_text(encoding="utf-8")
