"""The FIBER note of a cubin: what the hardware needs beside the code, for each kernel.

An ELF note (owner `FIBER`) in the section `.note.fiber`: one record a kernel, numbers little-endian. EIATTR_REGCOUNT
has 8 bits, so that the pool of a FIBER-native kernel is stated here. Record: version u16, layout u16, mode u16, count
of roles u16, fibers u32, pool start, pool end, registers a subpartition u16 each, length of the name u16, then roles
(first weft, last weft, base u16 each, 0 u16, entry u32) and the name, zeros to a multiple of 4.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from heddle.errors import UserError
from heddle.isa.cubin.bytes_reader import BytesReader
from heddle.isa.cubin.cubin import Cubin
from heddle.isa.cubin.elf import TYPE_NOTE, Section

NAME, OWNER = ".note.fiber", b"FIBER\0"
VERSION, KERNEL_RECORD = 1, 1
LAYOUTS = ("heddle", "paper")
MODES = ("cuda-native", "fiber")
_FIXED, _ROLE = "<HHHHIHHHH", "<HHHHI"


@dataclass(frozen=True, slots=True)
class Role:
    """Wefts `first`..`last` start at the instruction `entry` (bytes from the kernel's start) with this register
    base.
    """

    first: int
    last: int
    base: int
    entry: int


@dataclass(frozen=True, slots=True)
class FiberKernel:
    """What the note says of one kernel: registers `pool_start`..`pool_end` (exclusive) of each subpartition are the
    pool.
    """

    name: str
    mode: str
    fibers: int
    layout: str = "heddle"
    pool_start: int = 0
    pool_end: int = 0
    registers: int = 0
    roles: tuple[Role, ...] = ()
    version: int = VERSION

    @classmethod
    def cuda_native(cls, name: str, fibers: int) -> FiberKernel:
        """Return the record of an unchanged kernel: no pool, no roles."""
        return cls(name, "cuda-native", fibers)


def note_section(kernels: list[FiberKernel]) -> Section:
    """Return the section of the FIBER note. Raises UserError where a number does not fit."""
    data = b"".join(_note(_record(kernel)) for kernel in kernels)
    return Section(NAME, 0, TYPE_NOTE, 0, 0, 0, len(data), 0, 0, 4, 0, data)


def read_note(cubin: Cubin) -> tuple[FiberKernel, ...]:
    """Return the records of a cubin's FIBER note, none where it has none. Raises UserError where it is damaged."""
    section = cubin.elf.named(NAME)
    return () if section is None else parse_note(section.data)


def parse_note(data: bytes) -> tuple[FiberKernel, ...]:
    """Return the records of the bytes of a note. Raises UserError."""
    reader, kernels = BytesReader(data, NAME), []
    while reader.left:
        owner_size, size, kind = (reader.number(4) for _ in range(3))
        owner = reader.bytes(owner_size + -owner_size % 4)[:owner_size]
        body = reader.bytes(size + -size % 4)[:size]
        if owner == OWNER and kind == KERNEL_RECORD:
            kernels.append(_parsed(body))
    return tuple(kernels)


def _note(body: bytes) -> bytes:
    padded = OWNER + bytes(-len(OWNER) % 4) + body + bytes(-len(body) % 4)
    return struct.pack("<III", len(OWNER), len(body), KERNEL_RECORD) + padded


def _record(kernel: FiberKernel) -> bytes:
    name = kernel.name.encode()
    try:
        fixed = struct.pack(
            _FIXED, kernel.version, LAYOUTS.index(kernel.layout), MODES.index(kernel.mode), len(kernel.roles),
            kernel.fibers, kernel.pool_start, kernel.pool_end, kernel.registers, len(name),
        )  # fmt: skip
        roles = [struct.pack(_ROLE, role.first, role.last, role.base, 0, role.entry) for role in kernel.roles]
    except (struct.error, ValueError) as error:
        raise UserError(f"the FIBER note cannot hold kernel {kernel.name}: {error}") from error
    return fixed + b"".join(roles) + name


def _parsed(body: bytes) -> FiberKernel:
    reader = BytesReader(body, NAME)
    version, layout, mode, count, fibers, start, end, registers, name = struct.unpack(
        _FIXED, reader.bytes(struct.calcsize(_FIXED))
    )
    if version != VERSION or layout >= len(LAYOUTS) or mode >= len(MODES):
        raise UserError(f"{NAME} has version {version}, layout {layout}, mode {mode}; known: version {VERSION}")
    roles = []
    for _ in range(count):
        first, last, base, _unused, entry = struct.unpack(_ROLE, reader.bytes(struct.calcsize(_ROLE)))
        roles.append(Role(first, last, base, entry))
    text = reader.bytes(name).decode("utf-8", "backslashreplace")
    return FiberKernel(text, MODES[mode], fibers, LAYOUTS[layout], start, end, registers, tuple(roles), version)
