"""Symbols and relocations follow instructions that have moved."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from heddle.errors import UserError
from heddle.isa.cubin.cubin import SYMBOL_FUNCTION, SYMBOL_SECTION, Cubin
from heddle.isa.cubin.elf import REL, RELA, TYPE_REL, TYPE_RELA, Records, Section
from heddle.isa.cubin.shift import Shift

Shifts = Mapping[int, Shift]
"""The map of places of each section of code that changes, by index."""
LINE_SECTIONS = (".debug_line", ".nv_debug_line_sass")
FRAME_SECTION = ".debug_frame"
PLACE_BITS = 0xFFFFFFFF
"""Bits of a relocation's offset that say where it is; sm_80 keeps a flag above them."""
RELOCATION_64 = 2
"""R_CUDA_64: the address itself, 64 bits."""


def move_symbols(cubin: Cubin, shifts: Shifts) -> Records:
    """Return the symbols in their new places: a kernel and its section stay at 0, what lies inside moves."""
    symbols = cubin.symbols.copy()
    for row in symbols:
        shift = shifts.get(int(row["section"]))
        if shift is None or row["info"] & 15 == SYMBOL_SECTION:
            continue
        start, size = int(row["value"]), int(row["size"])
        row["value"] = moved_start(shift, start)
        if row["info"] & 15 == SYMBOL_FUNCTION and size:
            row["size"] = shift.end(start + size) - int(row["value"])
    return symbols


def anchored(cubin: Cubin, shifts: Shifts, symbol: int) -> Shift | None:
    """Return the map that addends to a symbol follow: that of code whose beginning the symbol names."""
    if symbol >= len(cubin.symbols):
        raise UserError(f"{cubin.what}: damaged cubin: a relocation names symbol {symbol} of {len(cubin.symbols)}")
    row = cubin.symbols[symbol]
    return shifts.get(int(row["section"])) if row["value"] == 0 else None


def move_relocations(cubin: Cubin, index: int, shifts: Shifts) -> Section:
    """Return a section of relocations with places and addends moved; those of line tables are moved with these
    tables.
    """
    section = cubin.elf.sections[index]
    kind = RELA if section.type == TYPE_RELA else REL
    rows = section.records(kind)
    target = target_of(cubin, section)
    if target.name in LINE_SECTIONS:
        return section
    here = shifts.get(section.info)
    for row in rows:
        there = anchored(cubin, shifts, int(row["info"]) >> 32)
        if kind is RELA and there is not None and row["addend"] > 0:
            row["addend"] = there.target(int(row["addend"]))
        elif kind is REL and there is not None and here is not None and int(row["info"]) & 0xFFFFFFFF in RETURN_TYPES:
            raise UserError(
                f"{cubin.what}: {section.name} keeps an address of code inside an instruction, which cannot be moved"
            )
        if here is not None:
            at = int(row["offset"])
            row["offset"] = at & ~PLACE_BITS | here.place(at & PLACE_BITS)
    return section.with_data(rows.tobytes())


RETURN_TYPES = (56, 57)
"""Relocations of the halves of an address in the immediate of an instruction; with implicit addends on sm_80."""


def moved_start(shift: Shift, start: int) -> int:
    """Return where code that began at `start` begins now: a kernel at 0 with what was inserted there."""
    return shift.target(start) if start else 0


def target_of(cubin: Cubin, section: Section) -> Section:
    """Return the section that a section of relocations is about. Raises UserError where there is none."""
    if not 0 < section.info < len(cubin.elf.sections):
        raise UserError(f"{cubin.what}: damaged cubin: {section.name} is about section {section.info}")
    return cubin.elf.sections[section.info]


def move_implicit(cubin: Cubin, data: bytearray, index: int, shifts: Shifts) -> None:
    """Move the implicit addends (sm_80) that data sections keep in place, in `data`, the bytes of section `index`."""
    for section in cubin.elf.sections:
        if section.type != TYPE_REL or section.info != index:
            continue
        for row in section.records(REL):
            shift, at = anchored(cubin, shifts, int(row["info"]) >> 32), int(row["offset"])
            if shift is None or int(row["info"]) & 0xFFFFFFFF != RELOCATION_64:
                continue
            if at + 8 > len(data):
                raise UserError(f"{cubin.what}: damaged cubin: {section.name} names a place outside its section")
            (value,) = struct.unpack_from("<Q", data, at)
            if value:
                struct.pack_into("<Q", data, at, shift.target(value))
