"""The table of modelled instructions: opcode bits to the opcode, slots and widths of a row."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from heddle.isa.words import get_bits

BASE_BITS = 0x1FF
ALL_REGISTERS = 1
"""Bits 11:9 of the opcode where A, B and C are registers."""
SIZES = (1, 1, 1, 1, 1, 2, 4, 4)
"""Registers by bits 75:73: bytes, halves and words take one, 64 bits two, 128 bits four."""
MATRICES = (1, 2, 4, 4)


@dataclass(frozen=True, slots=True)
class Entry:
    """One instruction: the row's opcode, its registers, and what it does to global memory."""

    name: str
    op: str
    dst: int | str = 0
    sources: str = ""
    slots: str = ""
    widths: Mapping[str, int | str] | None = None
    memory: str = ""

    def width(self, what: str, word: int) -> int:
        """Return the registers of a source slot, or of `bytes`."""
        return _count((self.widths or {}).get(what, 1), word)

    def destination(self, word: int) -> int:
        """Return the registers of the destination, 0 for none."""
        return _count(self.dst, word)

    def source_slots(self, code: int) -> str:
        """Return the slots of vector registers in a form of the opcode."""
        if self.slots or not self.sources:
            return self.slots
        if code >> 9 & 7 == ALL_REGISTERS:
            return self.sources
        others = "c" if len(self.sources) > 2 else ""
        return ("a" if "a" in self.sources else "") + others


def _count(width: int | str, word: int) -> int:
    if width == "size":
        return SIZES[get_bits(word, 75, 73)]
    if width == "matrices":
        return MATRICES[get_bits(word, 73, 72)]
    return int(width)


@lru_cache
def _entries() -> tuple[dict[int, Entry], dict[int, Entry]]:
    text = (files("heddle.frontends.sass") / "opcodes.toml").read_text("utf-8")
    by_base: dict[int, Entry] = {}
    by_code: dict[int, Entry] = {}
    for row in tomllib.loads(text)["opcode"]:
        fields: dict[str, Any] = {name: value for name, value in row.items() if name not in ("base", "codes")}
        entry = Entry(**fields)
        by_code |= dict.fromkeys(row.get("codes", ()), entry)
        if "base" in row:
            by_base[row["base"]] = entry
    return by_base, by_code


def find(code: int) -> Entry | None:
    """Return the entry of a 13-bit opcode, None where warp programs have nothing for it."""
    by_base, by_code = _entries()
    return by_code.get(code) or by_base.get(code & BASE_BITS)
