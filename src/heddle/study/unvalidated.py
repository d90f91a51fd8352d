"""What is said beside numbers: that nothing public checks them, and where today's kernel is not the best known."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from heddle.machine.spec import Machine

HERE = Path(__file__).parent
TABLE, BASELINES = HERE / "unvalidated.toml", HERE / "baselines.toml"
Row = Mapping[str, Any]


@functools.cache
def rows(table: Path = TABLE) -> Sequence[Row]:
    """Return the rows of a table: a text, and perhaps `kernel`, `architecture`, `gpu`, `where` (parameters)."""
    found: Sequence[Row] = tomllib.loads(table.read_text(encoding="utf-8"))["row"]
    return found


def unvalidated(kernel: str, machine: Machine, params: Mapping[str, Any]) -> str:
    """Return why nothing public checks a number, empty where `heddle validate` has cases of its kind."""
    return next((str(row["reason"]) for row in _fitting(TABLE, kernel, machine, params)), "")


def baseline_note(kernel: str, machine: Machine, params: Mapping[str, Any]) -> str:
    """Return what today's kernel lacks beside the best known, or could have as FIBER has it; empty if nothing is."""
    return "; ".join(str(row["note"]) for row in _fitting(BASELINES, kernel, machine, params))


def _fitting(table: Path, kernel: str, machine: Machine, params: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of a table that are about a kernel on a machine with these parameters."""
    gpu = machine.name.split()[0].partition("+")[0]  # h100+fiber and h100 with another rate of L2 are h100
    asked = {"kernel": kernel, "architecture": machine.architecture, "gpu": gpu}
    for row in rows(table):
        here = all(value in names(row.get(field, value)) for field, value in asked.items())
        if here and all(params.get(name) in several(value) for name, value in row.get("where", {}).items()):
            yield row


def names(field: str | Sequence[str]) -> Sequence[str]:
    """Return the names in a field of a row, which has one or several."""
    return (field,) if isinstance(field, str) else field


def several(value: Any) -> Sequence[Any]:
    """Return the values that a parameter may have in a row, which states one or several."""
    return value if isinstance(value, list) else (value,)
