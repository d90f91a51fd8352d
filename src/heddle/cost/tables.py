"""Tables of a Liberty file over input slew and output load, between their points and beyond them linear."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from heddle.cost.liberty import Group

_SLEWS = ("input_net_transition", "input_transition_time", "related_pin_transition")
"""What the first axis here is called; a constraint has the clock's slew first."""


@dataclass(frozen=True, slots=True)
class Table:
    """Values over two axes: [first][second]; an axis of one point stands for any value."""

    first: tuple[float, ...]
    second: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]

    def at(self, first: float, second: float) -> float:
        """Return the value, bilinear, extended beyond the outer points."""
        row, along = _place(self.first, first)
        column, across = _place(self.second, second)
        upper = self.values[row]
        if along == 0.0:
            return _between(upper, column, across)
        return _between(upper, column, across) * (1 - along) + _between(self.values[row + 1], column, across) * along


def _place(axis: tuple[float, ...], value: float) -> tuple[int, float]:
    if len(axis) == 1:
        return 0, 0.0
    at = min(max(bisect_right(axis, value) - 1, 0), len(axis) - 2)
    return at, (value - axis[at]) / (axis[at + 1] - axis[at])


def _between(row: tuple[float, ...], at: int, part: float) -> float:
    return row[at] if part == 0.0 else row[at] * (1 - part) + row[at + 1] * part


def table_of(group: Group, templates: dict[str, Group], first_scale: float, second_scale: float, scale: float) -> Table:
    """Return a table with its axes in the order of `Table`, and in the units that the scales lead to."""
    template = templates.get(group.names[0]) if group.names else None
    axes = [_numbers(group, template, f"index_{k}") for k in (1, 2)]
    rows = [[float(x) * scale for x in row.replace(",", " ").split()] for row in group.values["values"]]
    flat = [value for row in rows for value in row]
    width = max(len(axes[1]), 1)
    matrix = [flat[k : k + width] for k in range(0, len(flat), width)]
    if template is not None and template.text("variable_1") and template.text("variable_1") not in _SLEWS:
        axes.reverse()
        matrix = [list(column) for column in zip(*matrix, strict=True)]
    first = tuple(x * first_scale for x in axes[0]) or (0.0,)
    second = tuple(x * second_scale for x in axes[1]) or (0.0,)
    return Table(first, second, tuple(tuple(row) for row in matrix))


def _numbers(group: Group, template: Group | None, name: str) -> list[float]:
    given = group.values.get(name) or (template.values.get(name) if template else None) or []
    return [float(x) for part in given for x in part.replace(",", " ").split()]


def mean(tables: list[Table], first: float, second: float) -> float:
    """Return the mean of several tables at a point; zero without any."""
    return sum(table.at(first, second) for table in tables) / len(tables) if tables else 0.0
