"""Words and notes in a file like NVIDIA's cubins: ELF, 64 bits, one kernel.

`heddle sass show` and nvdisasm read it (the latter refuses FIBER opcodes); it is not for loading on a GPU, which the
note of its kind says. Layout of ELF: the ELF specification; CUDA's values: measured on cubins of CUDA 13.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from heddle.isa.words import Words, from_ints, to_bytes

OWNER = b"Heddle\0"
PROGRAM_NOTE = ".note.heddle.program"
PROGRAM_RECORD = 1
"""Type of the note's record: the text of `heddle.isa.emission.note`."""
ELF_HEADER, SECTION_HEADER, SYMBOL = "<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ"
HEADER_BYTES, SECTION_BYTES, SYMBOL_BYTES = 64, 64, 24
IDENT = b"\x7fELF\x02\x01\x01\x41\x08" + bytes(7)
EXECUTABLE, CUDA, ELF_VERSION = 2, 190, 1
FLAGS = {"sm_80": 0x6005004, "sm_90": 0x6005A04, "sm_100": 0x6006402}
"""e_flags of sm_80, sm_90a and sm_100a."""
PROGBITS, SYMTAB, STRTAB, NOTE, CUDA_INFO = 1, 2, 3, 7, 0x70000000
ALLOCATED, EXECUTED = 2, 4
GLOBAL_FUNCTION, SECTION_SYMBOL = 0x12, 0x03
KERNEL = 0x10  # st_other: a kernel that can be launched
CODE_ALIGNMENT = 128
PADDING = 0x000FC00000000000_0000000000007918
"""NOP, as NVIDIA's compiler pads code with."""
REGISTER_COUNT, LONG_RECORD = 0x2F, 4
"""Attribute of .nv.info: a symbol and its registers a thread; format 4: a size of two bytes, then the values."""
INSTRUCTION_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section to be written; `link` and `info` as ELF wants them."""

    name: str
    type: int
    data: bytes
    flags: int = 0
    link: int = 0
    info: int = 0
    alignment: int = 1
    entry_bytes: int = 0


def kernel_file(
    name: str, architecture: str, words: Words, registers: int, note: str, further: tuple[Section, ...] = ()
) -> bytes:
    """Return the file of one kernel; `further`: other sections, such as the FIBER note."""
    names, text_at, kernel_symbol = b"\0" + name.encode() + b"\0", 5, 2
    info = struct.pack("<BBHII", LONG_RECORD, REGISTER_COUNT, 8, kernel_symbol, registers)
    symbols = bytes(SYMBOL_BYTES) + struct.pack(SYMBOL, 0, SECTION_SYMBOL, 0, text_at, 0, 0)
    size = len(words) * INSTRUCTION_BYTES
    symbols += struct.pack(SYMBOL, 1, GLOBAL_FUNCTION, KERNEL, text_at, 0, size)
    sections = (
        Section(name=".strtab", type=STRTAB, data=names),
        Section(name=".symtab", type=SYMTAB, data=symbols, link=2, info=2, alignment=8, entry_bytes=SYMBOL_BYTES),
        Section(name=".nv.info", type=CUDA_INFO, data=info, link=3, alignment=4),
        Section(
            name=f".text.{name}", type=PROGBITS, data=_code(words), flags=ALLOCATED | EXECUTED, link=3,
            info=kernel_symbol | (registers << 24 if architecture == "sm_80" else 0), alignment=CODE_ALIGNMENT,
        ),
        Section(name=PROGRAM_NOTE, type=NOTE, data=note_record(note.encode()), alignment=4),
        *further,
    )  # fmt: skip
    return _file(sections, FLAGS[architecture])


def note_record(data: bytes, kind: int = PROGRAM_RECORD) -> bytes:
    """Return an ELF note of Heddle."""
    header = struct.pack("<III", len(OWNER), len(data), kind)
    return header + _padded(OWNER, 4) + _padded(data, 4)


def note_text(data: bytes) -> bytes | None:
    """Return the text in the bytes of a note section; None where they hold none of Heddle's, or are cut off."""
    at = 0
    while at + 12 <= len(data):
        owner_bytes, size, kind = struct.unpack_from("<III", data, at)
        body = at + 12 + owner_bytes + -owner_bytes % 4
        if data[at + 12 : at + 12 + owner_bytes] == OWNER and kind == PROGRAM_RECORD and body + size <= len(data):
            return data[body : body + size]
        at = body + size + -size % 4
    return None


def _code(words: Words) -> bytes:
    code = to_bytes(words)
    missing = -len(code) % CODE_ALIGNMENT // INSTRUCTION_BYTES
    return code + to_bytes(from_ints([PADDING] * missing))


def _file(sections: tuple[Section, ...], flags: int) -> bytes:
    """Lay out sections after a first empty one and the table of their names."""
    table = b"\0" + b"".join(name.encode() + b"\0" for name in (".shstrtab", *(s.name for s in sections)))
    every = (Section(name=".shstrtab", type=STRTAB, data=table), *sections)
    body, headers, name_at = bytes(HEADER_BYTES), bytes(SECTION_BYTES), 1
    for section in every:
        body = _padded(body, section.alignment)
        headers += struct.pack(
            SECTION_HEADER, name_at, section.type, section.flags, 0, len(body), len(section.data), section.link,
            section.info, section.alignment, section.entry_bytes,
        )  # fmt: skip
        body += section.data
        name_at += len(section.name.encode()) + 1
    body = _padded(body, 8)
    header = struct.pack(
        ELF_HEADER, IDENT, EXECUTABLE, CUDA, ELF_VERSION, 0, 0, len(body), flags, HEADER_BYTES, 0, 0, SECTION_BYTES,
        len(every) + 1, 1,
    )  # fmt: skip
    return header + body[HEADER_BYTES:] + headers


def _padded(data: bytes, alignment: int) -> bytes:
    return data + bytes(-len(data) % alignment)
