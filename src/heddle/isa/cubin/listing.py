"""NVIDIA's listing of a cubin, read: instructions, words, labels and source lines of each section of code."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from heddle.errors import UserError
from heddle.isa.nvidia import run_program

_SECTION = re.compile(r"^\t\.section\t([^,\s]+),")
_LABEL = re.compile(r"^([.$_A-Za-z][^\s:]*):$")
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*/\* (0x[0-9a-f]{16}) \*/\s*$")
_HIGH = re.compile(r"^\s+/\* (0x[0-9a-f]{16}) \*/\s*$")
_LINE = re.compile(r"^\s*//## (File .*)$")
_BLANKS = re.compile(r"\s+")


@dataclass
class Listing:
    """One section: texts without blanks that mean nothing, words (low, high), source lines as nvdisasm states them
    (empty where it does not), and labels by name, as instruction indices.
    """

    texts: list[str] = field(default_factory=list)
    words: list[tuple[int, int]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


def disassemble(data: bytes) -> dict[str, Listing]:
    """Return NVIDIA's listing of a cubin, by section. Raises UserError where nvdisasm refuses the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code.cubin"
        path.write_bytes(data)
        return parse_listing(run_program("nvdisasm", ["-c", "-g", "-hex", path]))


def parse_listing(text: str) -> dict[str, Listing]:
    """Return the sections of a listing made with `nvdisasm -c -g -hex`. Raises UserError where a line is not
    understood.
    """
    sections: dict[str, Listing] = {}
    current, low, source = Listing(), None, ""
    for line in text.splitlines():
        if low is not None:
            high = _HIGH.match(line)
            if high is None:
                raise UserError(f"nvdisasm's listing has no second word in {line!r}")
            current.words.append((low, int(high[1], 16)))
            low = None
        elif found := _INSTRUCTION.match(line):
            current.texts.append(_tidy(found[2]))
            current.lines.append(source)
            low = int(found[3], 16)
        elif found := _SECTION.match(line):
            current, source = sections.setdefault(found[1], Listing()), ""
        elif found := _LINE.match(line):
            source = found[1]
        elif found := _LABEL.match(line):
            current.labels[found[1]] = len(current.texts)
    return {name: one for name, one in sections.items() if one.texts}


def _tidy(text: str) -> str:
    return _BLANKS.sub(" ", text.replace(" ;", ";")).strip().removesuffix(";").strip()
