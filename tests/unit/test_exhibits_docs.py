"""Are the tables of docs/explanation/exhibits.md what `heddle reproduce` answers?"""

from __future__ import annotations

import pytest

from exhibit_tables import PAGE, documented
from heddle.study.exhibits.fig1 import kernel_lines
from heddle.study.exhibits.fig2b import stacks
from heddle.study.exhibits.originals import originals
from heddle.study.exhibits.scaling import study

PICTURES = PAGE.parents[1] / "pictures"
LARGEST_BYTES = 150_000
NEAR = 0.25
"""Kernels are worked on: a documented count may be so far off before the page must be mended."""


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_documented_lines_of_code_are_those_of_the_kernels(gpu: str) -> None:
    rows = [row for row in documented("| kernel | mode | gpu |") if row["gpu"] == gpu]
    assert rows
    for row in rows:
        found = kernel_lines(row["kernel"], gpu, row["mode"])
        assert found is not None
        for name in ("logical lines", "code lines"):
            assert found[name.replace(" ", "_")] == pytest.approx(int(row[name]), rel=NEAR), row
        assert found["synchronisation_lines"] == pytest.approx(int(row["lines that synchronise"]), abs=3), row


def test_documented_lines_of_the_public_kernels_are_those_cited() -> None:
    rows = {(row["kernel"], row["gpu"]): int(row["code lines"]) for row in documented("| kernel | gpu | code lines |")}
    assert rows == {(row["kernel"], row["gpu"]): row["code_lines"] for row in originals()["kernels"]}


def test_pictures_of_the_page_are_there_and_small() -> None:
    pictures = sorted(PICTURES.glob("exhibit_*.svg"))
    assert [f"../pictures/{file.name}" in PAGE.read_text(encoding="utf-8") for file in pictures] == [True, True]
    assert max(file.stat().st_size for file in pictures) < LARGEST_BYTES


def number(text: str) -> float:
    """Return a number of a table: `1,234`, `5.6 %`, `7x`."""
    return float(text.replace(",", "").rstrip("%x "))


@pytest.mark.slow
def test_documented_points_of_the_scaling_study_are_those_of_the_simulator() -> None:
    rows = documented("| operands from |")
    found = {(row["supply"], row["rate"]): row for row in study()}
    assert len(rows) == len(found)
    for row in rows:
        point = found[row["operands from"], int(number(row["peak"]))]
        assert point["achieved"] == pytest.approx(number(row["achieved"]), rel=0.02), row
        assert point["intensity"] == pytest.approx(number(row["FLOP/B"]), rel=0.02), row
        assert point["busy"][point["unit"]] == pytest.approx(number(row["busiest"].split(" ")[-2]) / 100, abs=0.02), row


@pytest.mark.slow
def test_documented_shares_of_the_cpi_are_those_of_the_simulator() -> None:
    rows = {row["share of warp cycles"]: row for row in documented("| share of warp cycles |")}
    for kernel in stacks():
        short = kernel["kernel"].replace("FlashAttention ", "FA")
        for view, name in (("all", "all warps"), ("by_issue", "by issue")):
            column = f"{short} {name}"
            assert kernel[view]["cpi"] == pytest.approx(number(rows["CPI"][column]), rel=0.02)
            for group, share in kernel[view]["shares"].items():
                assert share == pytest.approx(number(rows[group][column]) / 100, abs=0.01), (group, column)
