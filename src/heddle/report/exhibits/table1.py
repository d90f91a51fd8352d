"""Table I as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType

from heddle.report.exhibits._tables import table


def show(answer: Mapping[str, Any]) -> RenderableType:
    """Return one line a feature, one column a machine."""
    gpus = answer["gpus"]
    made = table(answer["title"], ["feature", *gpus], left=1 + len(gpus))
    made.columns[0].no_wrap = True
    for row in answer["rows"]:
        made.add_row(row["feature"], *(row["cells"][gpu] for gpu in gpus))
    return made
