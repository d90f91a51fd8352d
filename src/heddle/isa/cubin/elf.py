"""ELF files of CUDA: header, sections, segments and tables of records, checked before anything believes them.

pyelftools decodes the header and line programs; tables of fixed-size records are NumPy arrays, so that a library of a
thousand kernels is read in milliseconds and a damaged count cannot ask for memory that the file does not have.
Source: the ELF specification (64 bits, little-endian); CUDA's own values are named where they are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.isa.nvidia import EXTRA_HINT

Records = NDArray[Any]

HEADER_BYTES = 64
_HALF = ("name", "type", "link", "info")
SECTION = np.dtype(
    [
        (name, "<u4" if name in _HALF else "<u8")
        for name in ("name", "type", "flags", "address", "offset", "size", "link", "info", "alignment", "entry_size")
    ]
)
SEGMENT = np.dtype(
    [
        ("type", "<u4"),
        ("flags", "<u4"),
        *((name, "<u8") for name in ("offset", "virtual", "physical", "file_size", "memory_size", "alignment")),
    ]
)
SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
REL = np.dtype([("offset", "<u8"), ("info", "<u8")])
RELA = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])

TYPE_NULL, TYPE_PROGBITS, TYPE_SYMTAB, TYPE_RELA, TYPE_NOTE, TYPE_NOBITS, TYPE_REL = 0, 1, 2, 4, 7, 8, 9
NO_BITS = (TYPE_NOBITS, 0x70000007, 0x70000009, 0x7000000A, 0x70000015)
"""Types of sections without bytes in the file: NOBITS, and CUDA's for global, local, shared and reserved shared
memory.
"""
MOST_SHARING = 2
"""Sections may overlap (strings of debugging on sm_100 do), but their sizes add up to no more than this many files."""
LARGEST_ALIGNMENT = 1 << 16


@dataclass(frozen=True, slots=True)
class Section:
    """One section: the fields of its header and its bytes (none for NOBITS, whose `size` is that in memory)."""

    name: str
    name_offset: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int
    data: bytes

    def with_data(self, data: bytes) -> Section:
        """Return the section with other bytes; its size is their number."""
        return replace(self, data=data, size=len(data))

    def records(self, kind: np.dtype[Any]) -> Records:
        """Return the bytes as records, a copy that may be changed. Raises UserError where they are no whole number."""
        if len(self.data) % kind.itemsize:
            raise UserError(f"damaged cubin: {self.name} has {len(self.data)} bytes, records of {kind.itemsize}")
        return np.frombuffer(self.data, kind).copy()


@dataclass(frozen=True, slots=True)
class Elf:
    """A whole file: the 64 bytes of its header and what pyelftools says of them, its sections and its segments."""

    header: bytes
    fields: Any
    sections: tuple[Section, ...]
    segments: Records

    def named(self, name: str) -> Section | None:
        """Return the first section of that name."""
        return next((section for section in self.sections if section.name == name), None)


def read_elf(data: bytes, what: str = "the file") -> Elf:
    """Read and check the ELF structure of a cubin. Raises UserError, which says what is wrong, for any bytes."""
    fields = _header(data, what)
    sections = _table(data, what, "sections", fields.e_shoff, fields.e_shnum, fields.e_shentsize, SECTION)
    segments = _table(data, what, "segments", fields.e_phoff, fields.e_phnum, fields.e_phentsize, SEGMENT)
    names_at = int(fields.e_shstrndx)
    if not 0 < names_at < len(sections):
        raise UserError(
            f"{what}: damaged cubin: section {names_at} of {len(sections)} is to hold the names of sections"
        )
    _check_ranges(data, sections, what)
    names = _bytes_of(data, sections[names_at])
    return Elf(data[:HEADER_BYTES], fields, tuple(_section(data, row, names, what) for row in sections), segments)


def string_at(strings: bytes, offset: int, what: str) -> str:
    """Return the string that begins at an offset of a string table. Raises UserError where it does not end."""
    end = strings.find(b"\0", offset)
    if offset > len(strings) or end < 0:
        raise UserError(f"damaged cubin: no string at {offset:#x} of {what}")
    return strings[offset:end].decode("utf-8", "backslashreplace")


def _header(data: bytes, what: str) -> Any:
    try:
        from elftools.construct import ConstructError
        from elftools.elf.structs import ELFStructs
    except ImportError as error:
        raise UserError("reading cubins needs pyelftools", hint=EXTRA_HINT) from error
    if data[:4] != b"\x7fELF" or len(data) < HEADER_BYTES:
        raise UserError(f"{what} is no cubin: it does not begin with the header of an ELF file")
    if data[4:6] != b"\x02\x01":
        raise UserError(f"{what} is no cubin: CUDA's files have 64 bits and are little-endian")
    structs = ELFStructs(little_endian=True, elfclass=64)
    structs.create_basic_structs()
    try:
        structs.create_advanced_structs()
        fields = structs.Elf_Ehdr.parse(data[:HEADER_BYTES])
    except (ConstructError, ValueError, KeyError) as error:
        raise UserError(f"{what}: damaged cubin: {error}") from error
    if fields.e_machine != "EM_CUDA":
        hint = "cuobjdump -xelf all FILE takes the cubins out of a library or a program"
        raise UserError(f"{what} is an ELF file of {fields.e_machine}, not of CUDA", hint=hint)
    return fields


def _table(data: bytes, what: str, of: str, start: int, count: int, size: int, kind: np.dtype[Any]) -> Records:
    if count == 0:
        return np.zeros(0, kind)
    if size != kind.itemsize:
        raise UserError(f"{what}: damaged cubin: headers of {of} have {size} bytes, not {kind.itemsize}")
    if start < HEADER_BYTES or start + count * size > len(data):
        raise UserError(f"{what}: damaged cubin: {count} {of} at {start:#x} do not fit in {len(data)} bytes")
    return np.frombuffer(data, kind, count, start).copy()


def _check_ranges(data: bytes, sections: Records, what: str) -> None:
    kept = sections[~np.isin(sections["type"], (*NO_BITS, TYPE_NULL))]
    length = np.uint64(len(data))
    bad = (kept["offset"] > length) | (kept["size"] > length) | (kept["offset"] + kept["size"] > length)
    if bad.any():
        row = kept[bad][0]
        where = f"{int(row['offset']):#x}, {int(row['size'])} bytes"
        raise UserError(f"{what}: damaged cubin: a section ({where}) lies outside the file of {len(data)} bytes")
    if int(kept["size"].sum()) > MOST_SHARING * len(data):
        raise UserError(f"{what}: damaged cubin: its sections overlap")
    if (sections["alignment"] > LARGEST_ALIGNMENT).any():
        raise UserError(f"{what}: damaged cubin: a section is aligned to more than {LARGEST_ALIGNMENT} bytes")


def _bytes_of(data: bytes, row: Any) -> bytes:
    if row["type"] in (*NO_BITS, TYPE_NULL):
        return b""
    return data[int(row["offset"]) : int(row["offset"] + row["size"])]


def _section(data: bytes, row: Any, names: bytes, what: str) -> Section:
    offset = int(row["name"])
    return Section(
        name=string_at(names, offset, f"the names of sections of {what}"),
        name_offset=offset,
        data=_bytes_of(data, row),
        **{name: int(row[name]) for name in SECTION.names or () if name != "name"},
    )
