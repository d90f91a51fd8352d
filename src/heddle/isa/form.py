"""The description of one instruction form: its text with places for fields and modifiers, and the bits of each.

A form is data of `tables/*.toml`. It says what nvdisasm prints for a word with its opcode, and
which registers the instruction reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from heddle.isa.instruction import Kind
from heddle.isa.words import get_bits

Bits = tuple[tuple[int, int], ...]
"""Bit ranges (high, low), most significant first; a field may lie in several places of the word."""

CONTROL_LOW = 105
"""Modifier bits from here on belong to the control field: `.reuse` is printed at an operand, but lies there."""


def gather(word: int, bits: Bits) -> int:
    """Return the field of a word: its ranges, one after the other."""
    value = 0
    for high, low in bits:
        value = value << (high - low + 1) | get_bits(word, high, low)
    return value


def scatter(value: int, bits: Bits) -> int:
    """Return a word that is zero but for the field."""
    word = 0
    for high, low in reversed(bits):
        width = high - low + 1
        word |= (value & (1 << width) - 1) << low
        value >>= width
    return word


def width_of(bits: Bits) -> int:
    """Return the number of bits of a field."""
    return sum(high - low + 1 for high, low in bits)


@dataclass(frozen=True, slots=True)
class CountBy:
    """Number of registers by the value of some bits, such as those of `.64` and `.128`."""

    bits: Bits
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """A field with a value: a register, a predicate, a number.

    The value `hidden` is not printed, nor are then `before` and `after`. Predicates of four bits have their negation on
    top; `complement` stands for predicates that are stored as 7 - index.
    """

    slot: str
    kind: Kind
    bits: Bits
    definition: bool = False
    update: bool = False
    count: int = 1
    count_by: CountBy | None = None
    hidden: int | None = None
    before: str = ""
    after: str = ""
    scale: int = 1
    complement: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Modifier bits: `texts[place][value]` is what stands at a place of the text; None for values that are illegal."""

    bits: Bits
    texts: dict[str, tuple[str | None, ...]]

    @property
    def in_control(self) -> bool:
        """Whether all bits lie in the control field, as `.reuse` does: then it is no modifier of the instruction."""
        return min(low for _, low in self.bits) >= CONTROL_LOW


@dataclass(frozen=True, slots=True)
class ChoicePlace:
    """One place where a choice shows."""

    choice: int
    place: str


Role = Literal["modifiers", "prefix", "suffix", "word"]

Piece = str | Field | ChoicePlace


@dataclass(frozen=True, slots=True)
class Run:
    """Pieces without value fields in a row: modifiers of the mnemonic, what stands before or after a field, a word."""

    role: Role
    field: int  # index into Form.fields of the field that a prefix or suffix belongs to, else -1
    position: int
    pieces: tuple[str | ChoicePlace, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """One form of an instruction: words with this opcode whose bits under `mask` equal `value`."""

    code: int
    name: str
    mask: int
    value: int
    pieces: tuple[Piece, ...]
    choices: tuple[Choice, ...]
    rest: int = 0  # bits that no text shows, and of choices with equal texts, as compilers set them
    uniform_guard: bool = False
    own_fiber_bits: bool = False  # a FIBER instruction: [104:92] are fields of its own, not remote sources
    fields: tuple[Field, ...] = field(init=False)
    """The value fields in the order of the text."""
    runs: tuple[Run, ...] = field(init=False)
    """What stands around them, in the order of the text."""
    constant: int = field(init=False)
    """Opcode, fixed bits and bits that no text shows."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(piece for piece in self.pieces if isinstance(piece, Field)))
        chosen = 0
        for choice in self.choices:
            chosen |= scatter(-1, choice.bits)
        constant = self.code & 0xFFF | self.code >> 12 << 91 | self.value | self.rest & ~chosen
        object.__setattr__(self, "constant", constant)
        object.__setattr__(self, "runs", tuple(_runs(self.pieces)))

    def positions(self) -> tuple[int, ...]:
        """Return for each field the number of the operand that it belongs to."""
        position, found = -1, []
        for piece in self.pieces:
            if isinstance(piece, Field):
                position += _separates(piece.before)
                found.append(max(position, 0))
                position += _separates(piece.after)
            elif isinstance(piece, str):
                position += piece in (" ", ", ")
        return tuple(found)


SEPARATORS = (" ", ", ", "[", "]", "+")


def _separates(text: str) -> bool:
    """Return whether what stands before or after a field begins another operand."""
    return "," in text or text == " "


def _runs(pieces: tuple[Piece, ...]) -> Iterator[Run]:
    """Yield the runs of a form: what stands between separators and fields, and holds a choice or a literal suffix."""
    number, owner, position, modifiers = 0, -1, -1, True
    current: list[str | ChoicePlace] = []

    def run(before: int = -1) -> Iterator[Run]:
        if not current:
            return
        role: Role = "modifiers" if modifiers else "suffix" if owner >= 0 else "prefix" if before >= 0 else "word"
        yield Run(role, owner if owner >= 0 else before, position, tuple(current))
        current.clear()

    for piece in pieces:
        if isinstance(piece, Field):
            yield from run(-1 if piece.before else number)
            position += _separates(piece.before) + _separates(piece.after)
            owner, number = -1 if piece.after else number, number + 1
            modifiers = False
        elif piece in SEPARATORS:
            yield from run()
            owner = -1
            modifiers = modifiers and piece != " "
            position += piece in (" ", ", ")
        else:
            current.append(piece)
    yield from run()
