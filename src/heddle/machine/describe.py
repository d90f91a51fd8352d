"""A machine as rows for people: every value with unit, kind, source and note."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.machine.fields import FIELDS, MAPPING_UNITS
from heddle.machine.spec import Machine, OpTiming, Pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One value of a machine: `field` is a field name or "ops.FFMA"."""

    field: str
    value: str
    unit: str
    kind: str
    source: str
    note: str
    meaning: str


def describe(machine: Machine) -> list[Row]:
    """Return a row for every value, in the order of the reference page: scalars first, then pipes and opcodes."""
    rows = [_row(machine, name, getattr(machine, name), info.unit, info.meaning) for name, info in FIELDS.items()]
    for name, unit in MAPPING_UNITS.items():
        rows += [_row(machine, f"{name}.{key}", entry, unit, "") for key, entry in getattr(machine, name).items()]
    return rows


def fitted(machine: Machine) -> list[Row]:
    """Return the rows of the values that were fitted to measured kernels."""
    return [row for row in describe(machine) if row.kind == "fitted"]


def _row(machine: Machine, name: str, value: object, unit: str, meaning: str) -> Row:
    provenance = machine.provenance.get(name)
    kind, source, note = (provenance.kind, provenance.source, provenance.note) if provenance else ("assumed", "", "")
    return Row(field=name, value=_text(value), unit=unit, kind=kind, source=source, note=note, meaning=meaning)


def _text(value: object) -> str:
    if isinstance(value, OpTiming):
        return f"{value.pipe}, every {value.initiation_cycles:g}, after {value.latency_cycles}"
    if isinstance(value, Pipe):
        return value.scope
    return f"{value:g}" if isinstance(value, float) else str(value)


def fields_table() -> str:
    """Return the scalar fields as Markdown tables, one a group: the body of docs/reference/machine.md."""
    lines: list[str] = []
    group = ""
    for name, info in FIELDS.items():
        if info.group != group:
            group = info.group
            lines += [
                "",
                f"### {group[0].upper()}{group[1:]}",
                "",
                "| field | unit | values | meaning |",
                "|---|---|---|---|",
            ]
        lines.append(f"| `{name}` | {info.unit} | {info.bound} | {info.meaning} |")
    return "\n".join(lines[1:]) + "\n"
