"""A cubin as kernels and functions: which section holds whose code, for which architecture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.isa import words as isa_words
from heddle.isa.cubin.elf import SYMBOL, TYPE_PROGBITS, TYPE_SYMTAB, Elf, Records, Section, read_elf, string_at
from heddle.isa.words import WORD_BYTES, Words

SYMBOL_FUNCTION, SYMBOL_SECTION = 2, 3
"""Types of symbols (low four bits of st_info)."""
OTHER_ENTRY = 0x10
"""Bit of st_other: the function is a kernel (STO_CUDA_ENTRY)."""
TEXT = ".text."
NEW_ABI, OLD_ABI = (0x41, 8), (0x33, 7)
"""EI_OSABI and EI_ABIVERSION: CUDA 13 keeps the architecture in bits 15:8 of e_flags, what came before in bits 7:0."""
TABLES = {80: "sm_80", 86: "sm_80", 87: "sm_80", 89: "sm_80", 90: "sm_90", 100: "sm_100", 103: "sm_100"}
"""Architectures of this project, with the opcode table that reads them."""


@dataclass(frozen=True, slots=True)
class Function:
    """Code of one name: a kernel, or a function that it calls; `start` and `size` in bytes of its section."""

    name: str
    symbol: int
    section: int
    start: int
    size: int
    entry: bool


@dataclass(frozen=True)
class Cubin:
    """A file of machine code: ELF structure, symbols, and what CUDA says in them."""

    elf: Elf
    what: str

    @cached_property
    def sm(self) -> int:
        """The number of the architecture, as 90 of sm_90. Raises UserError for a layout that is not known."""
        abi, flags = (self.elf.header[7], self.elf.header[8]), int(self.elf.fields.e_flags)
        if abi == NEW_ABI:
            return flags >> 8 & 0xFF
        if abi == OLD_ABI:
            return flags & 0xFF
        raise UserError(f"{self.what}: cubins with ABI {abi[0]:#x}, version {abi[1]}, are not known")

    @cached_property
    def architecture(self) -> str:
        """The opcode table that reads the code: sm_80, sm_90 or sm_100. Raises UserError where there is none."""
        if self.sm not in TABLES:
            known = ", ".join(f"sm_{sm}" for sm in TABLES)
            raise UserError(f"{self.what} is for sm_{self.sm}; known: {known}")
        return TABLES[self.sm]

    @cached_property
    def symbol_table(self) -> int:
        """The index of the section of symbols. Raises UserError where there is none."""
        for index, section in enumerate(self.elf.sections):
            if section.type == TYPE_SYMTAB:
                return index
        raise UserError(f"{self.what}: damaged cubin: no table of symbols")

    @cached_property
    def symbols(self) -> Records:
        """All symbols as records."""
        return self.elf.sections[self.symbol_table].records(SYMBOL)

    def symbol_name(self, index: int) -> str:
        """Return the name of a symbol, its section's for the symbol of a section."""
        symbol = self.symbols[index]
        if symbol["info"] & 15 == SYMBOL_SECTION and symbol["section"] < len(self.elf.sections):
            return self.elf.sections[int(symbol["section"])].name
        link = self.elf.sections[self.symbol_table].link
        if not 0 < link < len(self.elf.sections):
            raise UserError(f"{self.what}: damaged cubin: symbols without a table of names")
        return string_at(self.elf.sections[link].data, int(symbol["name"]), "the names of symbols")

    @cached_property
    def texts(self) -> dict[int, Section]:
        """The sections of code by index."""
        found = enumerate(self.elf.sections)
        return {i: one for i, one in found if one.type == TYPE_PROGBITS and one.name.startswith(TEXT)}

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """All functions, in the order of their symbols. Raises UserError where one lies outside its section."""
        return tuple(self._function(int(i)) for i in np.flatnonzero(self.symbols["info"] & 15 == SYMBOL_FUNCTION)
                     if int(self.symbols[i]["section"]) in self.texts)  # fmt: skip

    def _function(self, index: int) -> Function:
        symbol = self.symbols[index]
        name, text = self.symbol_name(index), self.texts[int(symbol["section"])]
        start, size = int(symbol["value"]), int(symbol["size"])
        if start + size > text.size or start % WORD_BYTES:
            raise UserError(f"{self.what}: damaged cubin: function {name} lies outside {text.name}")
        return Function(name, index, int(symbol["section"]), start, size, bool(symbol["other"] & OTHER_ENTRY))

    @cached_property
    def kernels(self) -> tuple[Function, ...]:
        """The functions that can be launched."""
        return tuple(function for function in self.functions if function.entry)

    def kernel(self, name: str) -> Function:
        """Return the kernel of that name. Raises UserError with the names there are."""
        from heddle.errors import unknown_name

        for function in self.kernels:
            if function.name == name:
                return function
        raise unknown_name("kernel", name, [function.name for function in self.kernels])

    def words(self, section: int) -> Words:
        """Return the instructions of a section of code. Raises UserError where it ends inside one."""
        text = self.elf.sections[section]
        if len(text.data) % WORD_BYTES:
            raise UserError(f"{self.what}: damaged cubin: {text.name} ends inside an instruction")
        return isa_words.from_bytes(text.data)


def opcodes(words: Words) -> NDArray[np.uint64]:
    """Return the 13-bit opcode of each instruction: bits [11:0], and bit 91 as bit 12."""
    return isa_words.get(words, 11, 0) | isa_words.get(words, 91, 91) << np.uint64(12)


def parse_cubin(data: bytes, what: str = "the file") -> Cubin:
    """Read a cubin from bytes. Raises UserError, whatever the bytes are."""
    cubin = Cubin(read_elf(data, what), what)
    _ = cubin.sm, cubin.functions
    return cubin


def read_cubin(path: Path) -> Cubin:
    """Read a cubin from a file. Raises UserError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {str(path)!r}: {error.strerror}") from error
    return parse_cubin(data, str(path))
