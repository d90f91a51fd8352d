"""Attributes of kernels (`.nv.info`): records of registers, parameters and places in the code.

A record is a format byte, an attribute byte and two bytes of value; format 4 has the size of a payload in these two,
and the payload after them. Names are those that NVIDIA's cuobjdump prints; which payloads hold offsets of instructions
was measured (each multiple of 16 inside the code, over own and library cubins).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from heddle.errors import UserError

INFO = ".nv.info"
FORMAT_SIZED = 4
REGISTERS, FRAME_BYTES, MAX_THREADS, EXTERNS, BARRIERS = 0x2F, 0x11, 0x05, 0x0F, 0x4C
STACK_BYTES, PARAMETER, PARAMETER_BYTES, REGISTERS_LAUNCH, EXITS = 0x12, 0x17, 0x19, 0x1B, 0x1C
INDIRECT_BRANCHES, REQUIRED_THREADS = 0x34, 0x10

NAMES = {
    0x01: "PAD", 0x04: "CTAIDZ_USED", 0x05: "MAX_THREADS", 0x0A: "PARAM_CBANK", 0x0F: "EXTERNS", 0x10: "REQNTID",
    0x11: "FRAME_SIZE", 0x12: "MIN_STACK_SIZE", 0x17: "KPARAM_INFO", 0x19: "CBANK_PARAM_SIZE", 0x1B: "MAXREG_COUNT",
    0x1C: "EXIT_INSTR_OFFSETS", 0x1D: "S2RCTAID_INSTR_OFFSETS", 0x1E: "CRS_STACK_SIZE", 0x23: "MAX_STACK_SIZE",
    0x25: "LD_CACHEMOD_INSTR_OFFSETS", 0x27: "ATOM_SYS_INSTR_OFFSETS", 0x28: "COOP_GROUP_INSTR_OFFSETS",
    0x29: "COOP_GROUP_MASK_REGIDS", 0x2E: "ATOM16_EMUL_INSTR_REG_MAP", 0x2F: "REGCOUNT",
    0x31: "INT_WARP_WIDE_INSTR_OFFSETS", 0x34: "INDIRECT_BRANCH_TARGETS", 0x35: "NVSAL_SW_WAR", 0x36: "SW_WAR",
    0x37: "CUDA_API_VERSION", 0x38: "NUM_MBARRIERS", 0x39: "MBARRIER_INSTR_OFFSETS", 0x40: "INSTR_REG_MAP",
    0x41: "RESERVED_SMEM_USED", 0x44: "UNUSED_LOAD_BYTE_OFFSET", 0x46: "SYSCALL_OFFSETS", 0x4A: "VRC_CTA_INIT_COUNT",
    0x4C: "NUM_BARRIERS", 0x4F: "AT_ENTRY_FRAGMENTS", 0x50: "SPARSE_MMA_MASK", 0x51: "TCGEN05_1CTA_USED",
    0x54: "REG_RECONFIG", 0x55: "ANNOTATIONS",
}  # fmt: skip
LISTS = frozenset((0x1C, 0x1D, 0x25, 0x27, 0x28, 0x31, 0x46))
"""Attributes whose payload is a list of 32-bit offsets."""
FIELDS = {0x39: (16, 0), 0x55: (8, 4), 0x40: (12, 0), 0x2E: (12, 0), 0x44: (8, 0)}
"""Attributes whose payload is records: their size, and where in each the one offset lies."""
WITHOUT_OFFSETS = frozenset(
    (
        *(0x01, 0x04, 0x05, 0x0A, 0x0F, 0x10, 0x11, 0x12, 0x17, 0x19, 0x1B, 0x1E, 0x23, 0x29, 0x2F, 0x35, 0x36, 0x37),
        *(0x38, 0x3D, 0x3E, 0x3F, 0x41, 0x4A, 0x4C, 0x4F, 0x50, 0x51, 0x54, 0x5F, 0x66, 0x6B, 0x6D),
    )
)
"""Attributes seen, or named, that hold no offset of an instruction."""

Place = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One record: its format, its code, and its payload (format 4) or its two bytes of value."""

    form: int
    code: int
    payload: bytes

    @property
    def name(self) -> str:
        """The name that NVIDIA's tools print, or the code."""
        return NAMES.get(self.code, f"{self.code:#04x}")

    @property
    def value(self) -> int:
        """The payload as one little-endian number."""
        return int.from_bytes(self.payload, "little")

    def numbers(self) -> tuple[int, ...]:
        """Return the payload as 32-bit numbers; bytes that are left over do not count."""
        return struct.unpack(f"<{len(self.payload) // 4}I", self.payload[: len(self.payload) // 4 * 4])


def parse(data: bytes, what: str) -> tuple[Attribute, ...]:
    """Return the records of a section. Raises UserError where one does not end inside it."""
    found, at = [], 0
    while at < len(data):
        if at + 4 > len(data):
            raise UserError(f"damaged cubin: {what} ends inside a record")
        form, code = data[at], data[at + 1]
        size = int.from_bytes(data[at + 2 : at + 4], "little") if form == FORMAT_SIZED else 0
        payload = data[at + 4 : at + 4 + size] if form == FORMAT_SIZED else data[at + 2 : at + 4]
        if form == FORMAT_SIZED and len(payload) < size:
            raise UserError(f"damaged cubin: a record of {what} at {at:#x} has {size} bytes, {len(payload)} are left")
        found.append(Attribute(form, code, payload))
        at += 4 + size
    return tuple(found)


def build(attributes: tuple[Attribute, ...]) -> bytes:
    """Return the bytes of records; `parse` gives the same records again."""
    out = bytearray()
    for one in attributes:
        out += bytes((one.form, one.code))
        out += struct.pack("<H", len(one.payload)) if one.form == FORMAT_SIZED else b""
        out += one.payload
    return bytes(out)


def moved(attribute: Attribute, place: Place) -> Attribute:
    """Return the attribute with every offset of an instruction replaced by `place` of it.

    Raises UserError where it is not known whether the attribute holds offsets.
    """
    if attribute.code in WITHOUT_OFFSETS:
        return attribute
    numbers = list(attribute.numbers())
    for index in offset_positions(attribute):
        numbers[index] = place(numbers[index])
    tail = attribute.payload[len(numbers) * 4 :]
    return Attribute(attribute.form, attribute.code, struct.pack(f"<{len(numbers)}I", *numbers) + tail)


def holds_offsets(attribute: Attribute) -> bool:
    """Return whether the attribute is known to hold offsets of instructions."""
    return attribute.code in LISTS or attribute.code in FIELDS or attribute.code == INDIRECT_BRANCHES


def offset_positions(attribute: Attribute) -> list[int]:
    """Return which 32-bit numbers of the payload are offsets of instructions. Raises UserError where that is not
    known.
    """
    count = len(attribute.payload) // 4
    if attribute.code in LISTS:
        return list(range(count))
    if attribute.code in FIELDS:
        size, at = FIELDS[attribute.code]
        if len(attribute.payload) % size:
            raise UserError(f"damaged cubin: attribute {attribute.name} has no whole number of records of {size} bytes")
        return list(range(at // 4, count, size // 4))
    if attribute.code == INDIRECT_BRANCHES:
        return _indirect_positions(attribute.numbers())
    if attribute.code in WITHOUT_OFFSETS:
        return []
    raise UserError(
        f"attribute {attribute.name} of the kernel is not known: it may hold places in the code, which have to move",
        hint="cuobjdump -elf FILE names it",
    )


def _indirect_positions(numbers: tuple[int, ...]) -> list[int]:
    """Records of a branch: its offset, 0, the number of targets, the targets."""
    positions, at = [], 0
    while at < len(numbers):
        count = numbers[at + 2] if at + 2 < len(numbers) else len(numbers)
        if at + 3 + count > len(numbers):
            raise UserError("damaged cubin: the targets of an indirect branch are cut off")
        positions += [at, *range(at + 3, at + 3 + count)]
        at += 3 + count
    return positions
