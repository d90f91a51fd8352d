"""The arrays that effects touch: values, which elements were ever written, and reading and writing boxes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.interp._arithmetic import Values, rounded
from heddle.ir.warp import DataObject


@dataclass(slots=True, eq=False)
class Box:
    """Rows [row, row_end) and columns [col, col_end) of one stage of an array, as asked for (it may stick out)."""

    stage: int
    row: int
    row_end: int
    col: int
    col_end: int
    inside: bool = False  # known to lie inside its array

    def covers(self, other: Box) -> bool:
        """Tell whether every element of `other` is in this box."""
        return (
            self.stage == other.stage
            and self.row <= other.row
            and other.row_end <= self.row_end
            and self.col <= other.col
            and other.col_end <= self.col_end
        )


@dataclass(slots=True, eq=False)
class TileArray:
    """One copy of a data object: values as float32 [stages, rows, cols]; unwritten elements are NaN."""

    description: DataObject
    label: str  # for messages
    values: Values = field(init=False)
    written: NDArray[np.bool_] = field(init=False)
    is_global: bool = field(init=False)  # global tensors clip boxes; all other memories must contain them
    _full: set[int] = field(default_factory=set)  # ids of shared boxes whose elements are all written

    def __post_init__(self) -> None:
        shape = self.description.shape
        full = (1,) * (3 - len(shape)) + tuple(shape)
        self.values = np.full(full, np.nan, np.float32)
        self.written = np.zeros(full, np.bool_)
        self.is_global = self.description.space == "global"

    def contains(self, box: Box) -> bool:
        """Tell whether a box lies inside."""
        stages, rows, cols = self.values.shape
        inside = box.row >= 0 and box.row_end <= rows and box.col >= 0 and box.col_end <= cols
        box.inside = inside and box.stage in range(stages)
        return box.inside

    def clipped(self, box: Box) -> Box:
        """Return the part of a box that lies inside (possibly empty)."""
        if box.inside or self.contains(box):
            return box
        stages, rows, cols = self.values.shape
        row, col = min(max(box.row, 0), rows), min(max(box.col, 0), cols)
        row_end, col_end = min(max(box.row_end, row), rows), min(max(box.col_end, col), cols)
        return Box(min(max(box.stage, 0), stages - 1), row, row_end, col, col_end)

    def is_written(self, box: Box, rows: NDArray[np.bool_] | None = None) -> bool:
        """Tell whether every element of the inner part of a box was written before; what is written stays so.

        `rows`: of the box, those that count.
        """
        if id(box) in self._full:
            return True
        b = self.clipped(box)
        if rows is not None:
            inner = self.written[b.stage, b.row : b.row_end, b.col : b.col_end]
            return bool(inner[rows[b.row - box.row : b.row_end - box.row]].all())
        if not self.written[b.stage, b.row : b.row_end, b.col : b.col_end].all():
            return False
        if not self.is_global:  # boxes of global tensors are made anew each time, so their ids mean nothing
            self._full.add(id(box))
        return True

    def forget(self, box: Box) -> None:
        """Make the elements of a box unwritten: something else now lies in their place."""
        b = self.clipped(box)
        where = (b.stage, slice(b.row, b.row_end), slice(b.col, b.col_end))
        self.values[where] = np.nan
        self.written[where] = False
        self._full.clear()

    def read(self, box: Box) -> Values:
        """Return the values of a box; elements outside the array are zero. The result may be a view."""
        b = self.clipped(box)
        inner = self.values[b.stage, b.row : b.row_end, b.col : b.col_end]
        if b is box:
            return inner
        outer = np.zeros((box.row_end - box.row, box.col_end - box.col), np.float32)
        outer[b.row - box.row : b.row_end - box.row, b.col - box.col : b.col_end - box.col] = inner
        return outer

    def write(
        self,
        box: Box,
        values: Values,
        *,
        add: bool = False,
        exact: bool = False,
        rows: NDArray[np.bool_] | None = None,
    ) -> None:
        """Round and store values, parts outside dropped; `add` accumulates, `exact`: they are of this type already.

        `rows`: of the box, those that are written.
        """
        b = self.clipped(box)
        if b is not box:
            values = values[b.row - box.row : b.row_end - box.row, b.col - box.col : b.col_end - box.col]
        where: Any = (b.stage, slice(b.row, b.row_end), slice(b.col, b.col_end))
        if rows is not None:
            taken = np.flatnonzero(rows[b.row - box.row : b.row_end - box.row])
            values, where = values[taken], (b.stage, b.row + taken, slice(b.col, b.col_end))
        if add:
            values = self.values[where] + values
        self.values[where] = values if exact and not add else rounded(values, self.description.dtype)
        if id(box) not in self._full:
            self.written[where] = True
            if not self.is_global and rows is None:
                self._full.add(id(box))
