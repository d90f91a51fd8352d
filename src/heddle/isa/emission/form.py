"""Forms: how a row of a warp program with some operands is spelled as an instruction word. Loaded from `forms/*.toml`.

A form fixes the bits of a word but for its slots (vector registers), its fields (values that rows have), the guard,
the control field and the FIBER fields. The most specific form whose fixed bits agree with a word is the word's form.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from heddle.errors import InternalError, UserError, unknown_name
from heddle.isa.layouts import FIBER_MASK

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SLOT_BITS = {"d": (23, 16), "s": (23, 16), "a": (31, 24), "b": (39, 32), "c": (71, 64)}
"""The register fields: destination (of LDGSTS a source, s), sources A, B and C."""
GUARD_MASK = 0xF << 12
CONTROL_MASK = (1 << 126) - (1 << 105)
WORD_MASK = (1 << 128) - 1
_OPERAND = re.compile(r"(?P<slot>[dsabc])?(?P<tensor>@?tm)?(?::(?P<count>n|\d+)(?:/(?P<over>\d+))?)?")


@dataclass(frozen=True, slots=True)
class Slot:
    """An operand of a form: its field ("" for tensor memory that a field `columns` names) and its registers.

    `per_column` divides the columns n of the shape: that many registers; else `count` is their number.
    """

    field: str
    count: int = 1
    per_column: int = 0
    tensor: bool = False

    def registers(self, columns: int) -> int:
        """Return the number of registers, or of groups of 32 columns of tensor memory."""
        return columns // self.per_column if self.per_column else self.count


@dataclass(frozen=True, slots=True)
class Field:
    """Bits that hold (value - offset) * times / scale; ranges (high, low), most significant first."""

    bits: tuple[tuple[int, int], ...]
    scale: int = 1
    offset: int = 0
    times: int = 1

    @property
    def width(self) -> int:
        """Number of bits."""
        return sum(high - low + 1 for high, low in self.bits)

    def put(self, word: int, value: int, what: str) -> int:
        """Return the word with the field set. Raises UserError for a value that it cannot hold."""
        raw, rest = divmod((value - self.offset) * self.times, self.scale)
        if rest or not 0 <= raw < 1 << self.width:
            top = self.value((1 << self.width) - 1)
            raise UserError(f"{what} = {value} does not fit its field; allowed: {self.offset} to {top}")
        return self.put_raw(word, raw)

    def put_raw(self, word: int, raw: int) -> int:
        """Return the word with these bits set, whatever they mean."""
        for high, low in reversed(self.bits):
            width = high - low + 1
            mask = (1 << width) - 1
            word = word & ~(mask << low) | (raw & mask) << low
            raw >>= width
        return word

    def raw(self, word: int) -> int:
        """Return the bits."""
        value = 0
        for high, low in self.bits:
            width = high - low + 1
            value = value << width | word >> low & (1 << width) - 1
        return value

    def signed(self, word: int) -> int:
        """Return the bits as a number in two's complement."""
        raw = self.raw(word)
        return raw - (1 << self.width) if raw >> (self.width - 1) else raw

    def value(self, raw: int) -> int:
        """Return the value that the bits mean."""
        return raw * self.scale // self.times + self.offset

    def get(self, word: int) -> int:
        """Return the value in a word."""
        return self.value(self.raw(word))


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """One form; `row` holds what a row must say for it and what its words say of a row."""

    op: str
    text: str
    word: int
    mask: int
    dst: Slot | None
    src: tuple[Slot, ...]
    accumulator: Slot | None
    row: Mapping[str, Any]
    fields: Mapping[str, Field]
    stands_for: tuple[str, ...]
    own_fiber_bits: bool
    cached: str  # slots that have an operand cache bit
    write_barrier: bool  # whether the word may name a counter for its write-back

    @property
    def code(self) -> int:
        """The 13-bit opcode."""
        return code_of(self.word)

    def vector_slots(self) -> tuple[Slot, ...]:
        """Return the sources that are vector registers in slots A, B, C, an accumulator that is read included."""
        slots = (*self.src, *((self.accumulator,) if self.accumulator else ()))
        return tuple(slot for slot in slots if not slot.tensor and slot.field in ("a", "b", "c"))


def code_of(word: int) -> int:
    """Return the 13-bit opcode of a word: bits 11:0, and bit 91 as bit 12."""
    return word & 0xFFF | (word >> 91 & 1) << 12


class Forms:
    """The forms of an architecture, by Heddle's opcode and by word."""

    def __init__(self, architecture: str, forms: list[Form]) -> None:
        self.architecture = architecture
        self.by_op: dict[str, list[Form]] = {}
        self._by_code: dict[int, list[Form]] = {}
        for form in forms:
            for op in (form.op, *form.stands_for):
                self.by_op.setdefault(op, []).append(form)
            self._by_code.setdefault(form.code, []).append(form)
        for group in self._by_code.values():
            group.sort(key=lambda form: -form.mask.bit_count())

    def find(self, word: int) -> Form | None:
        """Return the most specific form of a word, None for a word that no form describes."""
        for form in self._by_code.get(code_of(word), ()):
            if word & form.mask == form.word & form.mask:
                return form
        return None


@lru_cache
def forms_of(architecture: str) -> Forms:
    """Return the forms of sm_80, sm_90 or sm_100. Raises UserError for another architecture."""
    if architecture not in ARCHITECTURES:
        raise unknown_name("architecture", architecture, ARCHITECTURES)
    found: list[Form] = []
    folder = files("heddle.isa.emission") / "forms"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        for entry in tomllib.loads(file.read_text("utf-8"))["form"]:
            if architecture in entry.get("architectures", ARCHITECTURES):
                found.append(_form(entry))
    return Forms(architecture, found)


def _form(entry: Mapping[str, Any]) -> Form:
    word = int(entry["word"].replace("_", ""), 16)
    dst = _slot(entry["dst"]) if "dst" in entry else None
    src = tuple(_slot(text) for text in entry.get("src", ()))
    accumulator = _slot(entry["accumulator"]) if "accumulator" in entry else None
    fields = {name: _field(data) for name, data in entry.get("fields", {}).items()}
    open_bits = GUARD_MASK | CONTROL_MASK | (0 if entry.get("own_fiber_bits") else FIBER_MASK)
    for slot in (dst, *src, accumulator):
        if slot is not None and slot.field:
            high, low = SLOT_BITS[slot.field]
            open_bits |= (1 << high + 1) - (1 << low)
    for field in fields.values():
        open_bits |= field.put_raw(0, -1)
    if word & open_bits:
        raise InternalError(f"the form {entry['text']!r} fixes bits of its own fields")
    return Form(
        op=entry["op"], text=entry["text"], word=word, mask=WORD_MASK & ~open_bits, dst=dst, src=src,
        accumulator=accumulator, row=entry.get("row", {}), fields=fields,
        stands_for=tuple(entry.get("stands_for", ())), own_fiber_bits=entry.get("own_fiber_bits", False),
        cached=entry.get("cached", ""), write_barrier=entry.get("write_barrier", True),
    )  # fmt: skip


def _slot(text: str) -> Slot:
    match = _OPERAND.fullmatch(text)
    if match is None:
        raise InternalError(f"operand {text!r} of a form")
    field, count = match["slot"] or "", match["count"] or "1"
    if count == "n":
        return Slot(field, per_column=int(match["over"] or 1), tensor=bool(match["tensor"]))
    return Slot(field, int(count), tensor=bool(match["tensor"]))


def _field(data: Mapping[str, Any]) -> Field:
    ranges = []
    for part in data["bits"].split(","):
        high, _, low = part.partition(":")
        ranges.append((int(high), int(low or high)))
    return Field(tuple(ranges), data.get("scale", 1), data.get("offset", 0), data.get("times", 1))
