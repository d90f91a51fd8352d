"""Read a warp program from its text (see docs/reference/warp_program.md).

The types of the dataclasses in `heddle.ir.warp` say how each field is read. References to labels are resolved when the
whole text has been read. The parser checks form, not sense: `heddle.ir.warp_verify` does the latter.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from heddle.errors import UserError
from heddle.ir.field_reader import field_types, read_fields, read_name, read_record, read_value
from heddle.ir.opcodes import OPCODES
from heddle.ir.text_cursor import LineCursor, Token
from heddle.ir.warp import RZ, Control, Instruction, Register, Role, WarpProgram
from heddle.ir.warp_fiber import OWN, TENSOR
from heddle.ir.warp_printer import DECLARATIONS, INSTRUCTION_SYNTAX, REGISTER
from heddle.ir.work_text import WorkReader

SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_RECORDS = {keyword: field_types(WarpProgram)[field].__args__[0] for keyword, field in DECLARATIONS.items()}


def read_program(path: str | Path) -> WarpProgram:
    """Read a warp program from a file. Raises UserError with line and caret on bad text."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read warp program {str(path)!r}: {error}") from error
    return parse_program(text, file=str(path))


def parse_program(text: str, file: str = "<text>") -> WarpProgram:
    """Return the program that `text` describes. Raises UserError with line and caret on bad text."""
    reader = _Reader(file)
    for number, line in enumerate(text.splitlines(), start=1):
        cursor = LineCursor(file, number, line)
        if cursor.peek.kind != "end":
            reader.line(cursor)
            cursor.expect_end()
    return reader.program()


class _Reader:
    """State of the reading: what has been declared so far, and labels that are still open."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.header: dict[str, Any] | None = None
        self.params: dict[str, int | float | str] = {}
        self.records: dict[str, list[Any]] = {keyword: [] for keyword in DECLARATIONS}
        self.work = WorkReader()
        self.in_code = False
        self.instructions: list[dict[str, Any]] = []
        self.labels: dict[str, int] = {}
        self.references: list[tuple[dict[str, Any], str, LineCursor, Token]] = []  # record, field, place
        self.last: LineCursor = LineCursor(file, 1, "")

    def line(self, cursor: LineCursor) -> None:
        self.last = cursor
        if self.in_code:
            self._code_line(cursor)
        elif cursor.peek.kind == "string":
            self.work.packed_line(cursor)
        else:
            self._declaration(cursor, cursor.take())

    def program(self) -> WarpProgram:
        if self.header is None or self.work.fields is None:
            missing = "warp_program" if self.header is None else "work"
            self.last.fail(f"the program has no {missing} line")
        for record, field, cursor, token in self.references:
            if token.text not in self.labels:
                cursor.fail_unknown("label", token, self.labels)
            record[field] = self.labels[token.text]
        fields: dict[str, Any] = {
            field: tuple(_RECORDS[keyword](**given) for given in self.records[keyword])
            for keyword, field in DECLARATIONS.items()
        }
        fields["work"] = self.work.work()
        fields["instructions"] = tuple(Instruction(**given) for given in self.instructions)
        return WarpProgram(**self.header, params=self.params, **fields)

    def _declaration(self, cursor: LineCursor, keyword: Token) -> None:
        if self.header is None and keyword.text != "warp_program":
            cursor.fail(f"expected 'warp_program' on the first line, got {keyword}", keyword)
        if keyword.text in _RECORDS:
            self._record(cursor, keyword.text)
            return
        handlers = {
            "warp_program": self._header_line,
            "param": self._param_line,
            "work": self.work.work_line,
            "item": self.work.item_line,
            "items": self.work.items_line,
            "code": self._begin_code,
        }
        if keyword.text not in handlers:
            cursor.fail_unknown("declaration", keyword, [*handlers, *_RECORDS])
        handlers[keyword.text](cursor)

    def _header_line(self, cursor: LineCursor) -> None:
        skip = {"instructions", "work", "params", *DECLARATIONS.values()}
        self.header = read_record(cursor, WarpProgram, skip, parenthesised=False)

    def _param_line(self, cursor: LineCursor) -> None:
        name = read_name(cursor, "a parameter's name")
        cursor.expect("=")
        self.params[name] = read_value(cursor, int | float | str)

    def _record(self, cursor: LineCursor, keyword: str) -> None:
        kind = _RECORDS[keyword]
        own = {"entry": self._read_target} if kind is Role else {}
        fields = read_record(cursor, kind, set(own), parenthesised=False, extra=own)
        if isinstance(fields.get("entry"), Token):
            self.references.append((fields, "entry", cursor, fields["entry"]))
        self.records[keyword].append(fields)

    def _read_target(self, cursor: LineCursor) -> Any:
        """Return a token to resolve later, or a number where a program has a target without an instruction."""
        if cursor.peek.kind == "number":
            return cursor.integer("a program counter")
        token = cursor.peek
        cursor.name("a label")
        return token

    def _begin_code(self, cursor: LineCursor) -> None:
        self.in_code = True

    def _code_line(self, cursor: LineCursor) -> None:
        if cursor.after_peek.text == ":" and cursor.peek.kind == "name":
            token = cursor.take()
            cursor.expect(":")
            if token.text in self.labels:
                cursor.fail(f"label {token} is already in front of instruction {self.labels[token.text]}", token)
            self.labels[token.text] = len(self.instructions)
            return
        fields = _instruction(cursor)
        if cursor.peek.kind == "arrow":
            cursor.take()
            fields["target"] = self._read_target(cursor)
            if isinstance(fields["target"], Token):
                self.references.append((fields, "target", cursor, fields["target"]))
        self.instructions.append(fields)


def _instruction(cursor: LineCursor) -> dict[str, Any]:
    """Read control field, opcode, registers and fields of an instruction."""
    fields: dict[str, Any] = {"control": _control(cursor)}
    token = cursor.peek
    fields["op"] = cursor.name("an opcode")
    if fields["op"] not in OPCODES:
        cursor.fail_unknown("opcode", token, OPCODES)
    registers = []
    while cursor.peek.kind == "register":
        registers.append(_register(cursor))
        if cursor.accept("="):
            if "dst" in fields or len(registers) != 1:
                cursor.fail("an instruction has one destination, in front of its sources")
            fields["dst"] = registers.pop()
        elif not cursor.accept(","):
            break
    fields["src"] = tuple(registers)
    shape = _shape(cursor)
    if shape is not None:
        fields["shape"] = shape
    return fields | read_fields(cursor, Instruction, INSTRUCTION_SYNTAX, parenthesised=False)


def _control(cursor: LineCursor) -> Control:
    token = cursor.take()
    if token.kind != "control":
        cursor.fail(f"expected a control field such as [B------:R-:W-:S01], got {token}", token)
    wait, read, write, stall = token.text[1:-1].split(":")
    digits = [digit for digit in wait[1:] if digit != "-"]
    if wait[1:] != "".join(str(k) if str(k) in digits else "-" for k in range(len(wait) - 1)):
        cursor.fail("counter k of a wait mask stands in place k, as in B0-2---", token)
    barriers = [None if text[1] == "-" else int(text[1]) for text in (read, write)]
    return Control(
        stall=int(stall[1:]), wait=frozenset(map(int, digits)), read_barrier=barriers[0], write_barrier=barriers[1]
    )


def _register(cursor: LineCursor) -> Register:
    match = REGISTER.fullmatch(cursor.take().text)
    assert match is not None
    index, at, count, reuse = match.groups()
    place = {None: None, "own": OWN, "tm": TENSOR}[at] if at in (None, "own", "tm") else int(at)
    return Register(int(index) if index else RZ, int(count or "1"), reuse is not None, place)


def _shape(cursor: LineCursor) -> tuple[int, int, int] | None:
    match = SHAPE.fullmatch(cursor.peek.text)
    if match is None or cursor.after_peek.text == "=":
        return None
    cursor.take()
    m, n, k = map(int, match.groups())
    return m, n, k
