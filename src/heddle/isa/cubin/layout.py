"""Writes an ELF file again after sections have changed: offsets, segments and headers follow."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from heddle.isa.cubin.elf import HEADER_BYTES, NO_BITS, SECTION, SEGMENT, TYPE_NULL, Elf, Section

SEGMENT_HEADERS = 6
"""p_type of the segment that covers the table of segments itself (PT_PHDR)."""


@dataclass(frozen=True, slots=True)
class Laid:
    """The bytes of the sections in their places, and where each section begins (0 where it has no place)."""

    data: bytes
    offsets: tuple[int, ...]


def write_elf(elf: Elf, old: Elf) -> bytes:
    """Return the bytes of a file whose sections replace those of `old` (same order; new ones at the end)."""
    laid = _lay_out(elf.sections)
    sections_at = len(laid.data) + -len(laid.data) % 8
    segments_at = sections_at + len(elf.sections) * SECTION.itemsize
    header = bytearray(elf.header)
    header[32:48] = struct.pack("<QQ", segments_at if len(elf.segments) else 0, sections_at)
    header[60:62] = struct.pack("<H", len(elf.sections))
    table = b"".join(_section_header(one, at) for one, at in zip(elf.sections, laid.offsets, strict=True))
    body = bytes(header) + laid.data[HEADER_BYTES:].ljust(sections_at - HEADER_BYTES, b"\0")
    return body + table + _segments(elf, old, laid.offsets, segments_at)


def _lay_out(sections: tuple[Section, ...]) -> Laid:
    order = sorted(range(len(sections)), key=lambda i: (sections[i].offset, sections[i].type in NO_BITS, i))
    out, offsets = bytearray(HEADER_BYTES), [0] * len(sections)
    for index in order:
        section = sections[index]
        if section.type == TYPE_NULL:
            continue
        out += bytes(-len(out) % max(section.alignment, 1))
        offsets[index] = len(out)
        out += section.data
    return Laid(bytes(out), tuple(offsets))


def _section_header(section: Section, offset: int) -> bytes:
    values = (section.name_offset, section.type, section.flags, section.address, offset, section.size)
    return struct.pack("<IIQQQQ", *values) + struct.pack(
        "<IIQQ", section.link, section.info, section.alignment, section.entry_size
    )


def _segments(elf: Elf, old: Elf, offsets: tuple[int, ...], segments_at: int) -> bytes:
    """Return the segments: each covers the new places of the sections that it covered."""
    table = elf.segments.copy()
    old_at = int(old.fields.e_phoff)
    for row in table:
        start, size = int(row["offset"]), int(row["file_size"])
        excess = int(row["memory_size"]) - size
        if row["type"] == SEGMENT_HEADERS or start == old_at:
            row["offset"] = segments_at
            continue
        inside = [i for i, one in enumerate(old.sections) if _lies_in(one, start, size)]
        if not inside:
            continue
        ends = [offsets[i] + len(elf.sections[i].data) for i in inside]
        row["offset"] = min(offsets[i] for i in inside)
        row["file_size"] = max(ends) - int(row["offset"])
        row["memory_size"] = int(row["file_size"]) + max(excess, 0)
    return table.astype(SEGMENT).tobytes()


def _lies_in(section: Section, start: int, size: int) -> bool:
    if section.type in (TYPE_NULL, *NO_BITS) or not section.size:
        return False
    return start <= section.offset and section.offset + section.size <= start + size
