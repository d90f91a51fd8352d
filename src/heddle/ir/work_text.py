"""The text form of the table of work items: one line an item, or compressed where there are many.

Tile programs and warp programs print and read it alike (docs/reference/warp_program.md).
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.ir.field_reader import field_types, read_fields, read_integer, read_value
from heddle.ir.text_cursor import LineCursor
from heddle.ir.warp import Work

INLINE_ITEMS = 4096  # larger work tables (numbers in all) are printed compressed
BASE64_COLUMNS = 96  # characters of compressed data a line
_STORED = np.dtype("<i8")


def work_lines(work: Work, name_text: Callable[[str], str]) -> Iterator[str]:
    """Yield the lines that `WorkReader` reads back; `name_text` quotes a name where it must be."""
    attributes = ", ".join(name_text(name) for name in work.attributes)
    yield f"work {work.schedule} grid={work.grid} attributes=[{attributes}]"
    if work.items.size <= INLINE_ITEMS:
        for row in work.items.tolist():
            yield " ".join(["item", *map(str, row)])
        return
    data = base64.b64encode(zlib.compress(work.items.astype(_STORED).tobytes(), 9)).decode("ascii")
    yield f"items rows={work.items.shape[0]} zlib_base64="
    for begin in range(0, len(data), BASE64_COLUMNS):
        yield f'  "{data[begin : begin + BASE64_COLUMNS]}"'


class WorkReader:
    """Collects the lines `work`, `item` and `items`, and the quoted lines of compressed data."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] | None = None
        self.cursor: LineCursor | None = None
        self.rows: list[list[int]] = []
        self.packed_rows: int | None = None
        self.packed = ""

    def work_line(self, cursor: LineCursor) -> None:
        """Read `work static grid=66 attributes=[row, col]`."""
        schedule = read_value(cursor, field_types(Work)["schedule"])
        self.fields = {"schedule": schedule, **read_fields(cursor, Work, {"items", "schedule"}, parenthesised=False)}
        for name in ("grid", "attributes"):
            if name not in self.fields:
                cursor.fail(f"work has no {name!r}")
        self.cursor = cursor

    def item_line(self, cursor: LineCursor) -> None:
        """Read one item's attributes."""
        width = self._width(cursor)
        row = []
        while cursor.peek.kind != "end":
            row.append(read_integer(cursor, "an item attribute"))
        if len(row) != width:
            cursor.fail(f"this item has {len(row)} values; the work has {width} attributes")
        self.rows.append(row)

    def items_line(self, cursor: LineCursor) -> None:
        """Read the number of compressed rows."""
        self._width(cursor)
        cursor.expect("rows")
        cursor.expect("=")
        self.packed_rows = cursor.integer("a number of rows")
        cursor.expect("zlib_base64")
        cursor.expect("=")

    def packed_line(self, cursor: LineCursor) -> None:
        """Read a piece of compressed rows."""
        if self.packed_rows is None:
            cursor.fail("compressed data comes after an items line")
        self.packed += cursor.unquote(cursor.take())

    def work(self) -> Work:
        """Return the work; raises UserError if compressed rows are damaged."""
        assert self.fields is not None
        width = len(self.fields["attributes"])
        return Work(**self.fields, items=self._packed(width) if self.packed_rows is not None else self._listed(width))

    def _listed(self, width: int) -> NDArray[np.int64]:
        return np.array(self.rows, dtype=np.int64).reshape(len(self.rows), width)

    def _packed(self, width: int) -> NDArray[np.int64]:
        assert self.cursor is not None
        try:
            data = zlib.decompress(base64.b64decode(self.packed, validate=True))
        except (binascii.Error, zlib.error) as error:
            self.cursor.fail(f"the compressed items are damaged: {error}")
        rows = self.packed_rows or 0
        if len(data) != rows * width * _STORED.itemsize:
            self.cursor.fail(f"the compressed items are not {rows} rows of {width} values")
        return np.frombuffer(data, dtype=_STORED).astype(np.int64).reshape(rows, width)

    def _width(self, cursor: LineCursor) -> int:
        if self.fields is None:
            cursor.fail("items come after the work line")
        return len(self.fields["attributes"])
