"""Are lines of code counted by the rule, and on the files that a kernel is written in?"""

from __future__ import annotations

import pytest

from heddle.study.exhibits.code_lines import Lines, count
from heddle.study.exhibits.fig1 import ROOT, kernel_lines
from heddle.study.exhibits.originals import originals

SOURCE = '''"""A docstring
of two lines."""

# a comment
LIMIT = 3  # with a comment
"""What the limit is."""


def f(x):
    """Say what."""
    return (
        x
        + LIMIT
    )
'''


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (SOURCE, Lines(logical=3, code=6)),
        ("", Lines(0, 0)),
        ("# only a comment\n", Lines(0, 0)),
        ("a = 1; b = 2\n", Lines(logical=1, code=1)),
        ('text = """one\ntwo\n"""\n', Lines(logical=1, code=3)),
    ],
)
def test_comments_docstrings_and_blank_lines_do_not_count(source: str, lines: Lines) -> None:
    assert count(source) == lines


def test_a_kernel_has_the_files_that_wrote_its_operations() -> None:
    row = kernel_lines("gemm", "a100", "fiber")
    assert row is not None
    assert row["files"] == ["kernels/gemm/sm80_fiber.py"]
    assert row["code_lines"] == count((ROOT / row["files"][0]).read_text(encoding="utf-8")).code


def test_a_kernel_that_does_not_exist_has_no_row() -> None:
    assert kernel_lines("decode_split_fa4", "a100", "fiber") is None


def test_generations_need_more_synchronisation() -> None:
    rows = [kernel_lines("attention", gpu, "simt") for gpu in ("a100", "h100", "b200")]
    lines = [row["synchronisation_lines"] for row in rows if row]
    assert lines == sorted(set(lines))


def test_public_kernels_are_cited_with_a_commit_and_files() -> None:
    cited = originals()
    assert len(cited["commit"]) == 40
    assert all(row["files"] and row["code_lines"] > 0 for row in cited["kernels"])
