"""Read a tile program from its text.

The dataclasses of `heddle.ir.tile` say how each field is read. The parser checks form, not sense:
`heddle.ir.tile_verify` does the latter.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heddle.errors import SourceLocation, UserError
from heddle.ir import tile
from heddle.ir.field_reader import field_types, read_fields, read_name, read_record, read_value
from heddle.ir.text_cursor import LineCursor
from heddle.ir.tile_printer import (
    BODIES,
    DECLARATIONS,
    GLOBAL,
    HEADER_SKIP,
    OPERATIONS,
    OWN,
    POOL,
    TENSOR_MEMORY,
    operation_name,
)
from heddle.ir.work_text import WorkReader

_RECORDS = {keyword: field_types(tile.TileProgram)[field].__args__[0] for keyword, field in DECLARATIONS.items()}
_OPERATIONS: dict[str, type[tile.Op]] = {operation_name(kind): kind for kind in OPERATIONS}


def read_program(path: str | Path) -> tile.TileProgram:
    """Read a tile program from a file. Raises UserError with line and caret on bad text."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read tile program {str(path)!r}: {error}") from error
    return parse_program(text, file=str(path))


def parse_program(text: str, file: str = "<text>") -> tile.TileProgram:
    """Return the program that `text` describes. Raises UserError with line and caret on bad text."""
    reader = _Reader(file)
    for number, line in enumerate(text.splitlines(), start=1):
        cursor = LineCursor(file, number, line)
        if cursor.peek.kind != "end":
            reader.line(cursor)
            cursor.expect_end()
    return reader.program()


@dataclasses.dataclass
class _Open:
    """A body that has not ended: what it will be, its fields, and its operations so far."""

    kind: Any
    fields: dict[str, Any]
    ops: list[tile.Op] = dataclasses.field(default_factory=list)


class _Reader:
    """State of the reading: declarations so far, and the bodies that are open."""

    def __init__(self, file: str) -> None:
        self.header: dict[str, Any] | None = None
        self.params: dict[str, int | float | str] = {}
        self.files: list[str] = []
        self.records: dict[str, list[Any]] = {keyword: [] for keyword in DECLARATIONS}
        self.roles: list[tile.RoleBody] = []
        self.work = WorkReader()
        self.open: list[_Open] = []
        self.last = LineCursor(file, 1, "")
        self.handlers: dict[str, Callable[[LineCursor], None]] = {
            "tile_program": self._header_line,
            "param": self._param_line,
            "file": self._file_line,
            "work": self.work.work_line,
            "item": self.work.item_line,
            "items": self.work.items_line,
            "role": self._role_line,
            **{keyword: functools.partial(self._record_line, keyword) for keyword in DECLARATIONS},
        }

    def line(self, cursor: LineCursor) -> None:
        """Read one line that is not empty."""
        self.last = cursor
        if self.open:
            self._body_line(cursor)
            return
        if cursor.peek.kind == "string":
            self.work.packed_line(cursor)
            return
        keyword = cursor.take()
        if self.header is None and keyword.text != "tile_program":
            cursor.fail(f"expected 'tile_program' on the first line, got {keyword}", keyword)
        if keyword.text not in self.handlers:
            cursor.fail_unknown("declaration", keyword, self.handlers)
        self.handlers[keyword.text](cursor)

    def program(self) -> tile.TileProgram:
        """Return the program; raises UserError if a part is missing or a body is open."""
        if self.open:
            self.last.fail("the text ends inside a body: a closing brace is missing")
        if self.header is None or self.work.fields is None:
            self.last.fail(f"the program has no {'tile_program' if self.header is None else 'work'} line")
        records: dict[str, Any] = {field: tuple(self.records[keyword]) for keyword, field in DECLARATIONS.items()}
        return tile.TileProgram(
            **self.header, params=self.params, work=self.work.work(), roles=tuple(self.roles), **records
        )

    def _header_line(self, cursor: LineCursor) -> None:
        self.header = read_record(cursor, tile.TileProgram, HEADER_SKIP - {"name"}, parenthesised=False)

    def _param_line(self, cursor: LineCursor) -> None:
        name = read_name(cursor, "a parameter's name")
        cursor.expect("=")
        self.params[name] = read_value(cursor, int | float | str)

    def _file_line(self, cursor: LineCursor) -> None:
        self.files.append(read_name(cursor, "a file's name"))

    def _record_line(self, keyword: str, cursor: LineCursor) -> None:
        kind = _RECORDS[keyword]
        self.records[keyword].append(kind(**read_record(cursor, kind, parenthesised=False)))

    def _role_line(self, cursor: LineCursor) -> None:
        extra = {"where": self._location}
        fields = read_record(cursor, tile.RoleBody, {"body", "where"}, parenthesised=False, extra=extra)
        cursor.expect("{")
        self.open.append(_Open(tile.RoleBody, fields))

    def _body_line(self, cursor: LineCursor) -> None:
        if cursor.accept("}"):
            self._close()
            return
        keyword = cursor.take()
        if keyword.text not in _OPERATIONS:
            cursor.fail_unknown("operation", keyword, _OPERATIONS)
        kind = _OPERATIONS[keyword.text]
        fields = read_fields(cursor, kind, {"body"}, parenthesised=False, extra=self._extra(kind))
        for field in dataclasses.fields(kind):
            if field.default is dataclasses.MISSING and field.name not in {*fields, "body"}:
                cursor.fail(f"{keyword} has no {field.name!r}", keyword)
        if issubclass(kind, BODIES):
            cursor.expect("{")
            self.open.append(_Open(kind, fields))
        else:
            self.open[-1].ops.append(kind(**fields))

    def _close(self) -> None:
        closed = self.open.pop()
        made = closed.kind(**closed.fields, body=tuple(closed.ops))
        if isinstance(made, tile.RoleBody):
            self.roles.append(made)
        else:
            self.open[-1].ops.append(made)

    def _extra(self, kind: type[tile.Op]) -> dict[str, Callable[[LineCursor], Any]]:
        """Readers for the fields whose types `read_value` does not know."""
        readers: dict[str, Callable[[LineCursor], Any]] = {"where": self._location}
        if kind is tile.Mma:
            readers |= {"accumulate": _accumulate, "acc": _tmem_or_name, "a": _matrix_operand, "b": _second_operand}
        elif kind in (tile.LookUp, tile.LookUpRows):
            readers["codebook"] = _codebook
        elif kind is tile.SetBusyBit:
            readers["tile"] = _tmem_or_name
        elif kind in (tile.Fill, tile.Mask):
            readers["value"] = _number
        elif kind is tile.Elementwise:
            readers["scalars"] = _numbers
        return readers

    def _location(self, cursor: LineCursor) -> SourceLocation:
        token = cursor.peek
        file = cursor.integer("a file's number")
        if not 0 <= file < len(self.files):
            cursor.fail(f"there is no file {file}", token)
        cursor.expect(":")
        line = cursor.integer("a line")
        return SourceLocation(self.files[file], line, cursor.integer("a column") if cursor.accept(":") else 0)


def _accumulate(cursor: LineCursor) -> bool | str:
    token = cursor.peek
    word = cursor.name("true, false or first_iteration")
    if word not in ("true", "false", "first_iteration"):
        cursor.fail_unknown("value", token, ("true", "false", "first_iteration"))
    return word if word == "first_iteration" else word == "true"


def _number(cursor: LineCursor) -> float:
    value = read_value(cursor, int | float | str)
    if isinstance(value, str):
        cursor.fail("expected a number")
    return float(value)


def _numbers(cursor: LineCursor) -> tuple[float, ...]:
    values: list[float] = []
    cursor.expect("[")
    while not cursor.accept("]"):
        if values:
            cursor.expect(",")
        values.append(_number(cursor))
    return tuple(values)


def _reference_or_name(cursor: LineCursor, kind: Any) -> Any:
    if cursor.after_peek.text == "(":
        return read_value(cursor, kind)
    return read_name(cursor, "a tile")


_tmem_or_name = functools.partial(_reference_or_name, kind=tile.TmemRef)


def _matrix_operand(cursor: LineCursor) -> Any:
    """Read a register tile's name, a shared box, or a box after the word that says that it is in tensor memory."""
    if cursor.peek.text == TENSOR_MEMORY and cursor.after_peek.kind in ("name", "string"):
        cursor.take()
        return read_value(cursor, tile.TmemRef)
    return _reference_or_name(cursor, tile.SharedRef)


def _second_operand(cursor: LineCursor) -> Any:
    """Read a shared box, or a pool tensor or a tile of the role's own registers after the word that says so."""
    for word, kind in ((POOL, tile.PoolRef), (OWN, tile.OwnRef)):
        if cursor.peek.text == word and cursor.after_peek.kind in ("name", "string"):
            cursor.take()
            return read_value(cursor, kind)
    return read_value(cursor, tile.SharedRef)


def _codebook(cursor: LineCursor) -> Any:
    """Read a shared box, or one of a tensor after the word that says so."""
    if cursor.peek.text == GLOBAL and cursor.after_peek.kind in ("name", "string"):
        cursor.take()
        return read_value(cursor, tile.GlobalRef)
    return read_value(cursor, tile.SharedRef)
