"""Tables of instruction forms: `tables/*.toml`, loaded once an architecture."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any

from heddle.errors import UserError, unknown_name
from heddle.isa.form import Bits, Choice, ChoicePlace, CountBy, Field, Form, Piece, width_of
from heddle.isa.instruction import ARCHITECTURES, Kind

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_SEPARATORS = re.compile(r"(, | |\[|\]|\+)")


class Table:
    """All known forms of one architecture, by opcode."""

    def __init__(self, architecture: str, forms: list[Form]) -> None:
        self.architecture = architecture
        self.forms = tuple(forms)
        self.by_code: dict[int, tuple[int, ...]] = {}
        self.by_name: dict[str, tuple[int, ...]] = {}
        for number, form in enumerate(self.forms):
            self.by_code[form.code] = (*self.by_code.get(form.code, ()), number)
            self.by_name[form.name] = (*self.by_name.get(form.name, ()), number)

    def find(self, word: int) -> Form | None:
        """Return the form of a word, None where no form matches."""
        for number in self.by_code.get(code_of(word), ()):
            form = self.forms[number]
            if word & form.mask == form.value:
                return form
        return None


def code_of(word: int) -> int:
    """Return the 13-bit opcode: bits 11:0, and bit 91 as bit 12."""
    return word & 0xFFF | (word >> 91 & 1) << 12


def code_bits(code: int) -> int:
    """Return a word that is zero but for its opcode."""
    return code & 0xFFF | (code >> 12) << 91


def check_architecture(architecture: str) -> str:
    """Return the table's name of an architecture; sm_90a and sm_100a are sm_90 and sm_100. Raises UserError."""
    name = architecture.lower().removesuffix("a")
    if name not in ARCHITECTURES:
        raise unknown_name("architecture", architecture, ARCHITECTURES)
    return name


@lru_cache
def load_table(architecture: str) -> Table:
    """Return the table of `sm_80`, `sm_90` or `sm_100`, FIBER instructions included. Raises UserError."""
    architecture = check_architecture(architecture)
    forms: list[Form] = []
    for name in ("fiber", architecture):
        file = files("heddle.isa") / "tables" / f"{name}.toml"
        rows = tomllib.loads(file.read_text("utf-8"))["form"] if file.is_file() else []
        forms += [form_of(row) for row in rows if architecture in row.get("architectures", ARCHITECTURES)]
    return Table(architecture, forms)


def form_of(row: dict[str, Any]) -> Form:
    """Return the form of one entry of a table file. Raises UserError for an entry that makes no sense."""
    fields = {name: _field(name, data) for name, data in row.get("fields", {}).items()}
    choices = tuple(_choice(data, row) for data in row.get("choices", []))
    places = {place: number for number, choice in enumerate(choices) for place in choice.texts}
    pieces: list[Piece] = []
    for number, part in enumerate(_PLACEHOLDER.split(row["text"])):
        if number % 2 == 0:
            pieces += [text for text in _SEPARATORS.split(part) if text]
        elif part in fields:
            pieces.append(fields[part])
        elif part in places:
            pieces.append(ChoicePlace(places[part], part))
        else:
            raise UserError(f"table entry {row['text']!r}: nothing is known of {{{part}}}")
    return Form(
        code=row["code"], name=row["name"], mask=int(row.get("mask", "0"), 16), value=int(row.get("value", "0"), 16),
        rest=int(row.get("rest", "0"), 16), pieces=tuple(pieces), choices=choices,
        uniform_guard=row.get("uniform_guard", False), own_fiber_bits=row.get("own_fiber_bits", False),
    )  # fmt: skip


def bits_of(text: str) -> Bits:
    """Return the ranges of `81:34,23:16`, most significant first; a single number is one bit."""
    ranges = []
    for part in text.split(","):
        high, _, low = part.partition(":")
        ranges.append((int(high), int(low or high)))
    return tuple(ranges)


def _field(slot: str, data: dict[str, Any]) -> Field:
    by = data.get("count_by")
    return Field(
        slot=slot, kind=Kind[data["kind"]], bits=bits_of(data["bits"]),
        definition=data.get("role") in ("def", "update"), update=data.get("role") == "update",
        count=0 if data.get("role") == "none" else data.get("count", 1),
        count_by=CountBy(bits_of(by["bits"]), tuple(by["counts"])) if by else None,
        hidden=data.get("hidden"), before=data.get("before", ""), after=data.get("after", ""),
        scale=data.get("scale", 1), complement=data.get("complement", False),
    )  # fmt: skip


def _choice(data: dict[str, Any], row: dict[str, Any]) -> Choice:
    bits = bits_of(data["bits"])
    texts = {place: tuple(None if text == "?" else text for text in values) for place, values in data["texts"].items()}
    if any(len(values) != 1 << width_of(bits) for values in texts.values()):
        raise UserError(f"table entry {row['text']!r}: bits {data['bits']} do not have as many values as texts")
    return Choice(bits, texts)
