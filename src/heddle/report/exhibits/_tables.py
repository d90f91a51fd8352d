"""What the tables of the exhibits share."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table


def table(title: str, columns: Iterable[str], *, left: int = 1) -> Table:
    """Return an empty table; the first `left` columns are aligned to the left, the others to the right."""
    made = Table(title=title, title_justify="left")
    for number, name in enumerate(columns):
        made.add_column(name, justify="left" if number < left else "right")
    return made
