"""Match the text of an instruction against a form: the bits that would print it, or how far it fits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from heddle.isa.assemble import NEGATION_BIT, PREDICATE_MASK, flags_of, values_by_text
from heddle.isa.form import ChoicePlace, Field, Form, gather, scatter, width_of
from heddle.isa.instruction import LETTERS, Kind, Place
from heddle.isa.layouts import RZ, Layout
from heddle.isa.numbers import FLOAT_KINDS, REGISTERS, float_bits, is_register, register_index, register_prefix
from heddle.isa.text_format import NEXT_BYTES

_REGISTER = re.compile(r"(!?)([A-Za-z]+(?:\d+)?)(?:@(own|[0-3]))?")
_FIBER_REGISTER = re.compile(r"R(\d+)@(own|[0-3])")
_NUMBER = re.compile(r"-?0x[0-9a-fA-F]+|-?\d+")
_FLOAT = re.compile(r"[-+]?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|INF|QNAN|SNAN)")
_LABEL = re.compile(r"[A-Za-z_.$][\w.$]*")
_BLANKS = re.compile(r"[ \t]+")


@dataclass(slots=True)
class Progress:
    """How far the best form fitted, and what was expected there."""

    position: int = 0
    expected: set[str] = field(default_factory=set)

    def reached(self, position: int, expected: str) -> None:
        """Note an expectation that failed."""
        if position > self.position:
            self.position, self.expected = position, set()
        if position == self.position:
            self.expected.add(expected)


@dataclass(frozen=True, slots=True)
class Source:
    """A source register that was read: its slot letter, index and place."""

    letter: str
    index: int
    place: Place
    position: int


@dataclass(frozen=True, slots=True)
class State:
    """Bits so far, what each choice may still be, and the sources."""

    word: int
    allowed: tuple[int, ...]
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Matcher:
    """Matches one text; `labels` are addresses by name, `address` is that of the instruction."""

    text: str
    layout: Layout
    progress: Progress
    labels: Mapping[str, int]
    address: int

    def match(self, form: Form, start: int, end: int) -> State | None:
        """Return the state after text[start:end] as this form, None if it does not fit."""
        allowed = tuple((1 << (1 << width_of(choice.bits))) - 1 for choice in form.choices)
        return next(self._pieces(form, 0, start, end, State(0, allowed)), None)

    def finish(self, form: Form, state: State) -> int:
        """Return the bits of fields, choices and places."""
        word = state.word
        for choice, values in zip(form.choices, state.allowed, strict=True):
            usual = gather(form.rest, choice.bits)
            value = usual if values >> usual & 1 else (values & -values).bit_length() - 1
            word |= scatter(value, choice.bits)
        if any(source.place is not None for source in state.sources):
            word |= 1 << self.layout.remote
            for source in state.sources:
                word |= self.layout.write(source.letter, source.index, source.place, flags_of(form))
        return word

    def _pieces(self, form: Form, number: int, at: int, end: int, state: State) -> Iterator[State]:
        if number == len(form.pieces):
            if self.text[at:end].strip():
                self.progress.reached(at, "the end of the instruction")
            else:
                yield state
            return
        piece = form.pieces[number]
        for after, new in self._piece(form, piece, at, end, state):
            yield from self._pieces(form, number + 1, after, end, new)

    def _piece(
        self, form: Form, piece: str | Field | ChoicePlace, at: int, end: int, state: State
    ) -> Iterator[tuple[int, State]]:
        if isinstance(piece, str):
            if (after := self._literal(piece, at, end)) is not None:
                yield after, state
        elif isinstance(piece, ChoicePlace):
            for text, values in values_by_text(form, piece).items():
                possible = values & state.allowed[piece.choice]
                if possible and (after := self._literal(text, at, end)) is not None:
                    allowed = list(state.allowed)
                    allowed[piece.choice] = possible
                    yield after, State(state.word, tuple(allowed), state.sources)
        else:
            yield from self._field(piece, at, end, state)

    def _literal(self, text: str, at: int, end: int) -> int | None:
        """Return the position after a literal; a blank stands for any number of them, none after a comma."""
        start = at
        for character in text:
            if character == " ":
                blanks = _BLANKS.match(self.text, at, end)
                if blanks:
                    at = blanks.end()
                elif at == start or self.text[at - 1] != ",":
                    self.progress.reached(at, "a blank")
                    return None
            elif at < end and self.text[at] == character:
                at += 1
            else:
                self.progress.reached(start, repr(text.strip() or text))
                return None
        return at

    def _field(self, piece: Field, at: int, end: int, state: State) -> Iterator[tuple[int, State]]:
        start = self._literal(piece.before, at, end)
        if start is not None:
            for middle, bits, source in self._value(piece, start, end):
                after = self._literal(piece.after, middle, end)
                if after is not None:
                    sources = (*state.sources, source) if source else state.sources
                    yield after, State(state.word | bits, state.allowed, sources)
        if piece.hidden is not None:
            yield at, State(state.word | scatter(piece.hidden, piece.bits), state.allowed, state.sources)

    def _value(self, piece: Field, at: int, end: int) -> Iterator[tuple[int, int, Source | None]]:
        if piece.kind in (Kind.FIBER_REGISTER, Kind.FIBER_OWN):
            found = _FIBER_REGISTER.match(self.text, at, end)
            own = piece.kind == Kind.FIBER_OWN
            if found and int(found.group(1)) < REGISTERS and (found.group(2) == "own") == own:
                index = int(found.group(1)) + (0 if own else REGISTERS * int(found.group(2)))
                yield found.end(), scatter(index, piece.bits), None
            else:
                self.progress.reached(at, "a register of a subpartition, R0@0 to R511@3, or R0@own")
        elif is_register(piece.kind):
            yield from self._register(piece, at, end)
        elif piece.kind in FLOAT_KINDS:
            found = _FLOAT.match(self.text, at, end)
            bits = float_bits(piece.kind, found.group()) if found else None
            if found and bits is not None:
                yield found.end(), scatter(bits, piece.bits), None
            else:
                self.progress.reached(at, "a decimal number")
        else:
            yield from self._number(piece, at, end)

    def _number(self, piece: Field, at: int, end: int) -> Iterator[tuple[int, int, Source | None]]:
        found = _NUMBER.match(self.text, at, end)
        if found:
            value, after = int(found.group(), 0 if "x" in found.group() else 10), found.end()
        elif piece.kind == Kind.TARGET and (label := _LABEL.match(self.text, at, end)):
            if label.group() not in self.labels:
                self.progress.reached(at, "a label of this program")
                return
            value, after = self.labels[label.group()], label.end()
        else:
            self.progress.reached(at, "a number")
            return
        if piece.kind == Kind.TARGET:
            value -= self.address + NEXT_BYTES
        raw = raw_number(piece, value)
        if raw is None:
            self.progress.reached(at, f"a number of {range_text(piece)}")
        else:
            yield after, scatter(raw, piece.bits), None

    def _register(self, piece: Field, at: int, end: int) -> Iterator[tuple[int, int, Source | None]]:
        found = _REGISTER.match(self.text, at, end)
        index = register_index(piece, found.group(2)) if found else None
        prefix = register_prefix(piece.kind)
        if not found or index is None:
            self.progress.reached(at, f"a register {prefix}0, {prefix}1, ...")
            return
        predicate = piece.kind in (Kind.PREDICATE, Kind.UNIFORM_PREDICATE)
        if found.group(1) and not (predicate and width_of(piece.bits) > NEGATION_BIT):
            self.progress.reached(at, "no negation here")
            return
        letter = LETTERS.get(piece.slot, "") if piece.kind == Kind.GPR and not piece.definition else ""
        if (problem := _misplaced(piece, index, found, letter)) is not None:
            self.progress.reached(at, problem)
            return
        raw = PREDICATE_MASK - index if piece.complement else index
        bits = scatter(raw & (1 << width_of(piece.bits)) - 1 | bool(found.group(1)) << NEGATION_BIT, piece.bits)
        if not letter:
            yield found.end(), bits, None
            return
        place: Place = "own" if found.group(3) == "own" else int(found.group(3)) if found.group(3) else None
        yield found.end(), bits, Source(letter, index, place, at)


def _misplaced(piece: Field, index: int, found: re.Match[str], letter: str) -> str | None:
    """Return what would be right where a register's number or place cannot be."""
    place, largest = found.group(3), (1 << width_of(piece.bits)) - 1
    if piece.kind in (Kind.PREDICATE, Kind.UNIFORM_PREDICATE):
        return None if index <= PREDICATE_MASK else "a predicate 0 to 6"
    if place and not letter:
        return "a register without a place: only sources in slots A to D have one"
    if piece.kind == Kind.GPR and index == RZ and found.group(2) != "RZ":
        return "another register: the code of R255 stands for RZ"
    limit = 511 if place else largest
    if index > limit:
        prefix = register_prefix(piece.kind)
        return f"a register up to {prefix}{limit}" + (", or with a place, such as R300@own" if letter else "")
    return None


def raw_number(piece: Field, value: int) -> int | None:
    """Return the bits of a number, None where it does not fit."""
    width = width_of(piece.bits)
    scaled, remainder = divmod(value, piece.scale)
    signed = piece.kind in (Kind.SIGNED, Kind.TARGET)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    return scaled & (1 << width) - 1 if not remainder and low <= scaled <= high else None


def range_text(piece: Field) -> str:
    """Say which numbers a field holds."""
    width = width_of(piece.bits)
    signed = piece.kind in (Kind.SIGNED, Kind.TARGET)
    step = f", a multiple of {piece.scale}" if piece.scale > 1 else ""
    return f"{width} bits, {'with' if signed else 'without'} sign{step}"
