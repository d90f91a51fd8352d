"""Are the tables of docs/explanation/exhibits.md what `heddle reproduce` answers?"""

from __future__ import annotations

import pytest

from exhibit_tables import documented
from heddle.study.exhibits.fig1 import kernel_lines
from heddle.study.exhibits.originals import originals

NEAR = 0.1
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
