"""Tables of docs/explanation/exhibits.md as rows, for tests that ask whether they are true."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "exhibits.md"


def documented(first: str) -> list[dict[str, str]]:
    """Return the rows of the table whose header begins with these cells, `| a | b |`."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(first))
    names = _cells(lines[begin])
    rows = []
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(names, _cells(line), strict=True)))
    return rows


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
