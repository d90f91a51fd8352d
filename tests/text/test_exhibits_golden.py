"""Is the text of the paper's feature table what was reviewed?

After a wanted change run this file as a script: it writes the golden file anew; review the difference.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from heddle.report.exhibits.views import report
from heddle.study.exhibits.registry import reproduce

GOLDEN = Path(__file__).parent / "golden" / "exhibit_table1.txt"


def text() -> str:
    """Return the table as a pipe gets it."""
    console = Console(width=160, highlight=False, markup=False)
    with console.capture() as shown:
        console.print(report(reproduce(["table1"])))
    return "".join(f"{line.rstrip()}\n" for line in shown.get().rstrip().splitlines())


def test_the_feature_table_is_as_reviewed() -> None:
    assert text() == GOLDEN.read_text(encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.write_text(text(), encoding="utf-8")
