"""Source lines of a cubin compiled with -lineinfo: which file and line each instruction comes from, read by
pyelftools.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from heddle.errors import UserError
from heddle.isa.cubin.bytes_reader import BytesReader
from heddle.isa.cubin.cubin import Cubin
from heddle.isa.cubin.elf import REL, RELA, TYPE_REL, TYPE_RELA

LINES, ASSEMBLY_LINES = ".debug_line", ".nv_debug_line_sass"
ADDRESS_OPERATION_BYTES = 3
"""What precedes a relocated address: 0, size 9, DW_LNE_set_address."""
KNOWN_VERSIONS = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class Line:
    """One row: from this offset of a section of code on (bytes), instructions come from this line; `end` ends a
    sequence.
    """

    section: int
    offset: int
    file: str
    line: int
    end: bool


def read_lines(cubin: Cubin, name: str = LINES) -> tuple[Line, ...]:
    """Return the rows of a line table, none where there is none. Raises UserError where it is damaged."""
    from elftools.common.exceptions import ELFParseError
    from elftools.construct import ConstructError

    index = next((i for i, one in enumerate(cubin.elf.sections) if one.name == name), None)
    if index is None:
        return ()
    data = cubin.elf.sections[index].data
    starts = _starts(cubin, index)
    try:
        return tuple(row for at, size in _units(data, name) for row in _rows(data, at, size, starts))
    except (ConstructError, ELFParseError, AssertionError, ValueError, KeyError, IndexError, TypeError, AttributeError,
            ZeroDivisionError, OverflowError) as error:  # fmt: skip
        raise UserError(f"{cubin.what}: damaged cubin: {name} cannot be read: {error}") from error


def line_of_instructions(cubin: Cubin, section: int, count: int) -> list[Line | None]:
    """Return the row of each instruction of a section, None where none is known."""
    found: list[Line | None] = [None] * count
    rows = [row for row in read_lines(cubin) if row.section == section]
    for row, following in pairwise(rows):
        if not row.end:
            for index in range(row.offset // 16, min(following.offset // 16, count)):
                found[index] = row
    return found


def _units(data: bytes, name: str) -> Iterator[tuple[int, int]]:
    """Yield start and size of each unit; what pyelftools could not bound is refused here."""
    reader = BytesReader(data, name)
    while reader.left:
        start = reader.at
        length = reader.number(4)
        body = BytesReader(data, name, reader.at, reader.at + length)
        version = body.number(2)
        if version not in KNOWN_VERSIONS:
            raise UserError(f"{name} has line programs of version {version}; known: 2 to 4")
        reader.bytes(length)
        yield start, reader.at - start


def _rows(data: bytes, start: int, size: int, starts: dict[int, tuple[int, int]]) -> Iterator[Line]:
    from elftools.dwarf.lineprogram import LineProgram
    from elftools.dwarf.structs import DWARFStructs

    stream = io.BytesIO(data[start : start + size])
    structs = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8)
    header = structs.Dwarf_lineprog_header.parse_stream(stream)
    begin = _program_start(data, start)
    program = LineProgram(header, stream, structs, begin - start, size)
    addresses = iter(sorted(at for at in starts if start <= at < start + size))
    section = offset = None
    for entry in program.get_entries():
        if entry.is_extended and entry.command == 2:
            section, base = starts.get(next(addresses, -1), (None, 0))
            offset = base - int(entry.args[0])
        if entry.state is not None and section is not None and offset is not None:
            state = entry.state
            yield Line(section, state.address + offset, _file(header, state.file), state.line, state.end_sequence)
        if entry.state is not None and entry.state.end_sequence:
            section = None


def _program_start(data: bytes, start: int) -> int:
    return start + 10 + int.from_bytes(data[start + 6 : start + 10], "little")


def _file(header: Any, number: int) -> str:
    entries = header["file_entry"]
    return entries[number - 1].name.decode("utf-8", "backslashreplace") if 0 < number <= len(entries) else "?"


def _starts(cubin: Cubin, index: int) -> dict[int, tuple[int, int]]:
    """Return section and offset that each relocated address of the table names, by its place."""
    found, data = {}, cubin.elf.sections[index].data
    for section in cubin.elf.sections:
        if section.info != index or section.type not in (TYPE_REL, TYPE_RELA):
            continue
        for row in section.records(RELA if section.type == TYPE_RELA else REL):
            at, symbol = int(row["offset"]), int(row["info"]) >> 32
            if symbol >= len(cubin.symbols):
                raise UserError(f"{cubin.what}: damaged cubin: {section.name} names symbol {symbol}")
            target = cubin.symbols[symbol]
            addend = int(row["addend"]) if section.type == TYPE_RELA else int.from_bytes(data[at : at + 8], "little")
            found[at] = (int(target["section"]), int(target["value"]) + addend)
    return found
