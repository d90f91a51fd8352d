"""Line programs (`.debug_line`, `.nv_debug_line_sass`) follow instructions that have moved.

Rows are kept; every advance between them is written anew, and the places of relocated addresses follow. Source: DWARF
4, section 6.2; extended operations of NVIDIA (calls that were inlined) are copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from heddle.errors import UserError
from heddle.isa.cubin.bytes_reader import BytesReader, uleb

COPY, ADVANCE_PC, CONST_ADD_PC, FIXED_ADVANCE_PC = 1, 2, 8, 9
END_SEQUENCE, SET_ADDRESS = 1, 2
VERSIONS = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class Code:
    """What addresses of one section of code become: of an instruction, and of the end of a range."""

    start: int
    place: Callable[[int], int]
    end: Callable[[int], int]


@dataclass
class Moved:
    """The new bytes of a section, and by old place of each relocated address its new place and its new value.

    The bytes of the addresses themselves are the old ones: where the addend lies is a matter of the relocation.
    """

    data: bytearray = field(default_factory=bytearray)
    places: dict[int, int] = field(default_factory=dict)
    addresses: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Header:
    step: int
    line_range: int
    opcode_base: int
    lengths: tuple[int, ...]


def move_lines(data: bytes, name: str, codes: Mapping[int, Code]) -> Moved:
    """Return a section of line programs for moved code; `codes` is by place of a relocated address. Raises
    UserError.
    """
    moved, reader = Moved(), BytesReader(data, name)
    while reader.left:
        start = reader.at
        length = reader.number(4)
        unit = BytesReader(data, name, reader.at, reader.at + length)
        reader.at += length
        header = _header(unit)
        at = len(moved.data)
        moved.data += data[start : unit.at]
        _Rewriter(unit, header, codes, moved).run()
        struct.pack_into("<I", moved.data, at, len(moved.data) - at - 4)
    return moved


def _header(unit: BytesReader) -> _Header:
    version = unit.number(2)
    if version not in VERSIONS:
        raise UserError(f"{unit.what} has line programs of version {version}; known: 2 to 4")
    length = unit.number(4)
    program = unit.at + length
    step = unit.number(1)
    unit.bytes(1 if version < 4 else 2)
    unit.number(1)  # line_base: rows keep their lines
    line_range, base = unit.number(1), unit.number(1)
    if not (step and line_range and base):
        raise UserError(f"damaged cubin: {unit.what} has a line program without steps")
    lengths = tuple(unit.bytes(base - 1))
    if program > unit.end or program < unit.at:
        raise UserError(f"damaged cubin: a line program of {unit.what} begins outside it")
    unit.at = program
    return _Header(step, line_range, base, lengths)


class _Rewriter:
    """One program: `old` and `new` are addresses in old and new code; advances wait until a row needs them."""

    def __init__(self, unit: BytesReader, header: _Header, codes: Mapping[int, Code], moved: Moved) -> None:
        self.unit, self.header, self.codes, self.moved = unit, header, codes, moved
        self.code: Code | None = None
        self.old = self.new = 0

    def run(self) -> None:
        while self.unit.left:
            start, code = self.unit.at, self.unit.number(1)
            if code >= self.header.opcode_base:
                self._special(code)
            elif code == 0:
                self._extended(start)
            else:
                self._standard(code, start)

    def _special(self, code: int) -> None:
        by = (code - self.header.opcode_base) // self.header.line_range * self.header.step
        self.old += by
        self._advance(self._wanted(self.old) - by)
        self.new += by
        self.moved.data.append(code)

    def _standard(self, code: int, start: int) -> None:
        if code == COPY:
            self._advance(self._wanted(self.old))
        elif code == ADVANCE_PC:
            self.old += self.unit.leb() * self.header.step
            return
        elif code == CONST_ADD_PC:
            self.old += (255 - self.header.opcode_base) // self.header.line_range * self.header.step
            return
        elif code == FIXED_ADVANCE_PC:
            self.old += self.unit.number(2)
            return
        else:
            for _ in range(self.header.lengths[code - 1]):
                self.unit.leb()
        self.moved.data += self.unit.data[start : self.unit.at]

    def _extended(self, start: int) -> None:
        size = self.unit.leb()
        body, code = self.unit.at, self.unit.number(1) if size else 0
        if code == SET_ADDRESS and size == 9:
            self._set_address(self.unit.at, self.unit.number(8), len(self.moved.data) + self.unit.at - 8 - start)
        elif code == END_SEQUENCE:
            wanted = self.code.end(self.old) if self.code else self.old
            self._advance(wanted)
        self.unit.at = body
        self.unit.bytes(size)
        self.moved.data += self.unit.data[start : self.unit.at]
        if code == END_SEQUENCE:
            self.code, self.old, self.new = None, 0, 0

    def _set_address(self, at: int, value: int, new_at: int) -> None:
        self.code = self.codes.get(at)
        self.old = self.new = value
        self.moved.places[at] = new_at
        if self.code:
            self.old = self.code.start
            # nvdisasm knows the lines of a section by a sequence that begins where the section does
            self.new = self.moved.addresses[at] = self.code.place(self.old) if self.old else 0

    def _wanted(self, old: int) -> int:
        return self.code.place(old) if self.code else old

    def _advance(self, to: int) -> None:
        """Write what takes the new address to `to`."""
        if to < self.new or (to - self.new) % self.header.step:
            raise UserError(f"{self.unit.what}: a line program goes from {self.new:#x} to {to:#x}")
        if to > self.new:
            self.moved.data += bytes((ADVANCE_PC,)) + uleb((to - self.new) // self.header.step)
        self.new = to
