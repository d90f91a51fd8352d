"""What no public measurement checks: the reason stands beside every number that is printed of it."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent / "unvalidated.toml"


@functools.cache
def rows() -> Sequence[Mapping[str, Any]]:
    """Return the rows of the table: `kernel`, `reason`, perhaps `architecture` and `where` (parameters)."""
    found: Sequence[Mapping[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["row"]
    return found


def unvalidated(kernel: str, architecture: str, params: Mapping[str, Any]) -> str:
    """Return why nothing public checks a number, empty where `heddle validate` has cases of its kind."""
    for row in rows():
        here = row["kernel"] == kernel and row.get("architecture", architecture) == architecture
        if here and all(params.get(name) == value for name, value in row.get("where", {}).items()):
            return str(row["reason"])
    return ""
