"""What no public measurement checks: the reason stands beside every number that is printed of it."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heddle.machine.spec import Machine

TABLE = Path(__file__).parent / "unvalidated.toml"


@functools.cache
def rows() -> Sequence[Mapping[str, Any]]:
    """Return the rows of the table: `reason`, and perhaps `kernel`, `architecture`, `gpu`, `where` (parameters)."""
    found: Sequence[Mapping[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["row"]
    return found


def unvalidated(kernel: str, machine: Machine, params: Mapping[str, Any]) -> str:
    """Return why nothing public checks a number, empty where `heddle validate` has cases of its kind."""
    gpu = machine.name.split()[0].partition("+")[0]  # h100+fiber and h100 with another rate of L2 are h100
    for row in rows():
        asked = {"kernel": kernel, "architecture": machine.architecture, "gpu": gpu}
        here = all(value in names(row.get(field, value)) for field, value in asked.items())
        if here and all(params.get(name) == value for name, value in row.get("where", {}).items()):
            return str(row["reason"])
    return ""


def names(field: str | Sequence[str]) -> Sequence[str]:
    """Return the names in a field of a row, which has one or several."""
    return (field,) if isinstance(field, str) else field
