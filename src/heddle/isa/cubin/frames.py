"""Call frames (`.debug_frame`) follow instructions that have moved: ranges, and the advances between rows.

pyelftools cannot read these frames (their link to the common entry is a relocation), so that the few forms are read
here. Source: DWARF 4, section 6.4, with the 64-bit lengths that CUDA writes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from heddle.errors import UserError
from heddle.isa.cubin.bytes_reader import BytesReader
from heddle.isa.cubin.cubin import Cubin
from heddle.isa.cubin.elf import REL, RELA, TYPE_REL, TYPE_RELA
from heddle.isa.cubin.shift import Shift
from heddle.isa.cubin.symbols import RELOCATION_64, Shifts, moved_start

LONG = 0xFFFFFFFF
COMMON = 0xFFFFFFFFFFFFFFFF
OPERANDS = {
    0x00: "", 0x01: "8", 0x05: "uu", 0x06: "u", 0x07: "u", 0x08: "u", 0x09: "uu", 0x0A: "", 0x0B: "", 0x0C: "uu",
    0x0D: "u", 0x0E: "u", 0x0F: "b", 0x10: "ub", 0x11: "us", 0x12: "us", 0x13: "s", 0x14: "uu", 0x15: "us",
    0x16: "ub", 0x2E: "u",
}  # fmt: skip
"""Operands of the instructions that advance nothing: 8 bytes, unsigned, signed, a block of bytes."""
ADVANCES = {0x02: 1, 0x03: 2, 0x04: 4}
"""Bytes of the operand of the advances that have one."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of one function: where its range and its instructions lie in the section, and its place in the code."""

    start: int
    range_at: int
    range_bytes: int
    end: int
    shift: Shift


def move_frames(cubin: Cubin, data: bytearray, index: int, shifts: Shifts) -> None:
    """Move ranges and advances in `data`, the bytes of section `index` of frames. Raises UserError."""
    name = cubin.elf.sections[index].name
    for frame, factor in _frames(bytes(data), name, _starts(cubin, index, shifts)):
        new_start = moved_start(frame.shift, frame.start)
        size = frame.shift.end(frame.start + frame.range_bytes) - new_start
        if frame.range_bytes:
            struct.pack_into("<Q", data, frame.range_at, size)
        _move_advances(data, name, frame, factor, new_start)


def _starts(cubin: Cubin, index: int, shifts: Shifts) -> Mapping[int, tuple[int, Shift]]:
    """Return, by place in the section, the old start and the map of the code that a relocated address there names."""
    found, data = {}, cubin.elf.sections[index].data
    for section in cubin.elf.sections:
        if section.info != index or section.type not in (TYPE_REL, TYPE_RELA):
            continue
        for row in section.records(RELA if section.type == TYPE_RELA else REL):
            symbol, at = int(row["info"]) >> 32, int(row["offset"])
            if int(row["info"]) & 0xFFFFFFFF != RELOCATION_64 or symbol >= len(cubin.symbols):
                continue
            shift = shifts.get(int(cubin.symbols[symbol]["section"]))
            addend = int(row["addend"]) if section.type == TYPE_RELA else int.from_bytes(data[at : at + 8], "little")
            if shift is not None:
                found[at] = (int(cubin.symbols[symbol]["value"]) + addend, shift)
    return found


def _frames(data: bytes, name: str, starts: Mapping[int, tuple[int, Shift]]) -> list[tuple[Frame, int]]:
    """Return the frames of moved code, with the factor of their advances: bytes a step."""
    reader, found, factor = BytesReader(data, name), [], 1
    while reader.left:
        length, width = reader.number(4), 4
        if length == LONG:
            length, width = reader.number(8), 8
        end = reader.at + length
        body = BytesReader(data, name, reader.at, end)
        reader.at = end
        if length == 0:
            continue
        if body.number(width) == COMMON >> 64 - 8 * width:
            factor = _code_factor(body)
            continue
        place = body.at
        if place in starts:
            body.number(8)
            start, shift = starts[place]
            range_at = body.at
            found.append((Frame(start, range_at, body.number(8), end, shift), factor))
    return found


def _code_factor(body: BytesReader) -> int:
    body.number(1)
    if body.string():
        raise UserError(f"frames with an augmentation in {body.what} are not known")
    factor = body.leb()
    if factor == 0:
        raise UserError(f"damaged cubin: {body.what} has steps of no bytes")
    return factor


def _move_advances(data: bytearray, name: str, frame: Frame, factor: int, new_start: int) -> None:
    reader = BytesReader(bytes(data), name, frame.range_at + 8, frame.end)
    old, new = frame.start, new_start
    while reader.left:
        at, code = reader.at, reader.number(1)
        if code >> 6 == 1 or code in ADVANCES:
            size = ADVANCES.get(code, 0)
            by = factor * (reader.number(size) if size else code & 0x3F)
            old += by
            if old > frame.shift.old_size:  # sm_80 ends some frames so: a row that is never reached
                break
            wanted = moved_start(frame.shift, old) - new
            new += wanted
            _put_advance(data, at, code, size, wanted, factor, name)
        elif code >> 6 == 2:
            reader.leb()
        elif code >> 6 != 3:
            _skip(reader, code)


def _put_advance(data: bytearray, at: int, code: int, size: int, wanted: int, factor: int, name: str) -> None:
    steps, rest = divmod(wanted, factor)
    limit = 1 << (8 * size if size else 6)
    if rest or not 0 <= steps < limit:
        raise UserError(f"a row of {name} at {at:#x} cannot advance by {wanted} bytes")
    if size:
        data[at + 1 : at + 1 + size] = steps.to_bytes(size, "little")
    else:
        data[at] = code & 0xC0 | steps


def _skip(reader: BytesReader, code: int) -> None:
    if code not in OPERANDS:
        raise UserError(f"{reader.what} has a call frame instruction {code:#x} that is not known")
    for kind in OPERANDS[code]:
        if kind == "8":
            reader.number(8)
        elif kind == "b":
            reader.bytes(reader.leb())
        else:
            reader.leb()
