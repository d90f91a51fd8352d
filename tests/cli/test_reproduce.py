"""Does `heddle reproduce` choose, show, store and draw exhibits, and say what is wrong with a request?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from heddle.errors import UserError
from heddle.report.markdown import marks
from heddle.study.exhibits import registry
from heddle.study.exhibits._exhibit import Exhibit
from heddle.study.exhibits.originals import originals

from .conftest import Command


def test_the_list_names_every_exhibit(heddle: Command) -> None:
    ended = heddle("reproduce", "--list", "--json", "-")
    assert [row["name"] for row in json.loads(ended.out)["exhibits"]] == list(registry.EXHIBITS)


def test_only_takes_several_names(heddle: Command) -> None:
    ended = heddle("reproduce", "--list", "--only", "fig1", "table1", "--json", "-")
    assert [row["name"] for row in json.loads(ended.out)["exhibits"]] == ["fig1", "table1"]


def test_an_unknown_name_is_refused_with_the_nearest(heddle: Command) -> None:
    ended = heddle("reproduce", "--only", "tabel1")
    assert ended.code == 2
    assert "table1" in ended.err


def test_a_table_goes_to_standard_output(heddle: Command) -> None:
    ended = heddle("reproduce", "--only", "table1")
    assert (ended.code, "register sharing" in ended.out, ended.err) == (0, True, "")


def lines(jobs: int | None, progress: Any) -> dict[str, Any]:
    """Answer as the exhibit on lines of code does, at once."""
    row = {"logical_lines": 3, "code_lines": 4, "synchronisation_lines": 1, "roles": 1, "files": ["a.py"]}
    rows = [{"kernel": "gemm", "gpu": gpu, "mode": "simt", **row} for gpu in ("a100", "h100")]
    return {"rows": rows, "originals": originals()}


def test_a_picture_is_drawn_where_there_is_one(
    heddle: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        registry.EXHIBITS, "fig1", Exhibit(name="fig1", title="Lines of code", where="Fig. 1", answer=lines)
    )
    ended = heddle("reproduce", "--only", "table1", "fig1", "--out", str(tmp_path / "new"))
    assert ended.code == 0
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["fig1.svg"]


def test_without_matplotlib_a_picture_is_refused_first(
    heddle: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ended = heddle("reproduce", "--only", "fig1", "--out", str(tmp_path))
    assert (ended.code, "heddle-gpu[pictures]" in ended.err, ended.out) == (2, True, "")


def test_a_folder_that_cannot_be_made_is_bad_use(heddle: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert heddle("reproduce", "--only", "fig1", "--out", str(tmp_path / "file")).code == 2


def test_an_exhibit_that_fails_is_named_and_the_others_go_on(heddle: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(jobs: int | None, progress: Any) -> dict[str, Any]:
        raise UserError("too large\nmore")

    broken = Exhibit(name="fig1", title="Lines of code", where="Fig. 1", answer=fails)
    monkeypatch.setitem(registry.EXHIBITS, "fig1", broken)
    ended = heddle("reproduce", "--only", "fig1", "table1")
    assert ended.code == 1
    assert "Lines of code: failed: too large" in ended.out
    assert "register sharing" in ended.out


def test_an_exhibit_goes_between_its_marks_and_a_page_without_them_is_refused_before_anything_runs(
    heddle: Command, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text("text")
    refused = heddle("reproduce", "--only", "table1", "--markdown", str(page))
    assert (refused.code, page.read_text()) == (2, "text")
    begin, end = marks("heddle reproduce --only table1")
    page.write_text(f"before\n{begin}\n{end}\n")
    assert heddle("reproduce", "--only", "table1", "--markdown", str(page)).code == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert "| registers belong to a | thread |" in text
