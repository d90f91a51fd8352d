"""Writes a cubin with instructions inserted: code, symbols, relocations, attributes, frames, line tables and ELF
headers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace

from heddle.errors import UserError
from heddle.isa.cubin import attributes
from heddle.isa.cubin.cubin import Cubin
from heddle.isa.cubin.elf import REL, RELA, TYPE_NULL, TYPE_REL, TYPE_RELA, Elf, Records, Section
from heddle.isa.cubin.frames import move_frames
from heddle.isa.cubin.layout import write_elf
from heddle.isa.cubin.line_program import Code, Moved, move_lines
from heddle.isa.cubin.shift import Shift
from heddle.isa.cubin.symbols import (
    FRAME_SECTION,
    LINE_SECTIONS,
    Shifts,
    move_implicit,
    move_relocations,
    move_symbols,
    target_of,
)
from heddle.isa.words import Words, to_bytes

SECOND_FORM = (".nv.capmerc", ".nv.merc")
"""Sections of a second form of each kernel (sm_100), for finalisation by the driver; it would no longer be the
code's.
"""
FULL_DEBUG = ".debug_info"
SECTION_BITS = 0xFFFFFF
"""Bits of sh_info that name a section; registers lie above them."""


@dataclass(frozen=True, slots=True)
class Code128:
    """New code of a section, and where the old instructions are in it."""

    words: Words
    shift: Shift


def rewrite(cubin: Cubin, codes: Mapping[int, Code128], extra: tuple[Section, ...] = ()) -> bytes:
    """Return the bytes of the cubin with new code in some sections and extra sections at the end.

    Raises UserError, with the reason, for what cannot be moved.
    """
    shifts = {index: code.shift for index, code in codes.items()}
    _check(cubin, shifts)
    symbols = move_symbols(cubin, shifts)
    lines = {
        i: _move_line_section(cubin, i, shifts) for i, s in enumerate(cubin.elf.sections) if s.name in LINE_SECTIONS
    }
    sections = [_section(cubin, i, codes, shifts, symbols, lines) for i in range(len(cubin.elf.sections))]
    named = _with_names(cubin.elf, sections, extra)
    return write_elf(replace(cubin.elf, sections=tuple(named)), cubin.elf)


def _check(cubin: Cubin, shifts: Shifts) -> None:
    if cubin.elf.named(FULL_DEBUG) is not None:
        raise UserError(
            f"{cubin.what} has full debugging information, whose places would not follow", hint="compile without -G"
        )


def _section(
    cubin: Cubin,
    index: int,
    codes: Mapping[int, Code128],
    shifts: Shifts,
    symbols: Records,
    lines: Mapping[int, Moved],
) -> Section:
    section = cubin.elf.sections[index]
    if index in codes:
        return section.with_data(to_bytes(codes[index].words))
    if index == cubin.symbol_table:
        return section.with_data(symbols.tobytes())
    if section.name.startswith(SECOND_FORM):
        return replace(section, type=TYPE_NULL, data=b"", size=0, flags=0, link=0, info=0)
    if section.name.startswith(attributes.INFO + ".") and section.info & SECTION_BITS in shifts:
        shift = shifts[section.info & SECTION_BITS]
        found = attributes.parse(section.data, section.name)
        return section.with_data(attributes.build(tuple(attributes.moved(one, shift.place) for one in found)))
    if section.type in (TYPE_REL, TYPE_RELA):
        if target_of(cubin, section).name in LINE_SECTIONS:
            return _line_relocations(cubin, section, symbols, lines[section.info])
        return move_relocations(cubin, index, shifts)
    if index in lines:
        return _line_data(cubin, index, symbols, lines[index])
    return _data(cubin, index, shifts)


def _data(cubin: Cubin, index: int, shifts: Shifts) -> Section:
    section = cubin.elf.sections[index]
    data = bytearray(section.data)
    if section.name == FRAME_SECTION:
        move_frames(cubin, data, index, shifts)
    move_implicit(cubin, data, index, shifts)
    return section.with_data(bytes(data)) if section.data else section


def _relocations(cubin: Cubin, index: int) -> list[tuple[Section, Records]]:
    """Return the sections of relocations about a section, with their records."""
    about = [one for one in cubin.elf.sections if one.type in (TYPE_REL, TYPE_RELA) and one.info == index]
    return [(one, one.records(RELA if one.type == TYPE_RELA else REL)) for one in about]


def _move_line_section(cubin: Cubin, index: int, shifts: Shifts) -> Moved:
    section, codes = cubin.elf.sections[index], {}
    for one, rows in _relocations(cubin, index):
        for row in rows:
            at, symbol = int(row["offset"]), int(row["info"]) >> 32
            if symbol >= len(cubin.symbols):
                raise UserError(f"{cubin.what}: damaged cubin: {one.name} names symbol {symbol}")
            target = cubin.symbols[symbol]
            addend = (
                int(row["addend"]) if one.type == TYPE_RELA else int.from_bytes(section.data[at : at + 8], "little")
            )
            shift = shifts.get(int(target["section"]))
            if shift is not None:
                codes[at] = _code(shift, int(target["value"]) + addend)
    return move_lines(section.data, section.name, codes)


def _code(shift: Shift, start: int) -> Code:
    def place(old: int) -> int:
        return min(shift.place(old), shift.new_size) if old < shift.old_size else shift.new_size

    return Code(start, place, shift.end)


def _line_relocations(cubin: Cubin, section: Section, symbols: Records, moved: Moved) -> Section:
    rows = section.records(RELA if section.type == TYPE_RELA else REL)
    for row in rows:
        at = int(row["offset"])
        if at not in moved.places:
            raise UserError(f"{cubin.what}: {section.name} names a place, {at:#x}, that holds no address")
        row["offset"] = moved.places[at]
        if section.type == TYPE_RELA and at in moved.addresses:
            row["addend"] = moved.addresses[at] - int(symbols[int(row["info"]) >> 32]["value"])
    return section.with_data(rows.tobytes())


def _line_data(cubin: Cubin, index: int, symbols: Records, moved: Moved) -> Section:
    data = bytearray(moved.data)
    for one, rows in _relocations(cubin, index):
        for row in rows if one.type == TYPE_REL else ():
            at = int(row["offset"])
            if at in moved.addresses:
                value = moved.addresses[at] - int(symbols[int(row["info"]) >> 32]["value"])
                struct.pack_into("<Q", data, moved.places[at], value)
    return cubin.elf.sections[index].with_data(bytes(data))


def _with_names(elf: Elf, sections: list[Section], extra: tuple[Section, ...]) -> list[Section]:
    """Return the sections and the extra ones, whose names are added to the table of names."""
    names_at = int(elf.fields.e_shstrndx)
    names, end = sections[names_at].data, max(one.offset + len(one.data) for one in sections)
    for section in extra:
        sections = [*sections, replace(section, name_offset=len(names), offset=end)]
        names += section.name.encode() + b"\0"
    sections[names_at] = sections[names_at].with_data(names)
    return sections
