"""Text to words: instructions as nvdisasm writes them, with control field, places, labels and raw words.

A line is `[control] text {extra=0x...}`, where control and extra may be left out, `.word 0x...`, or `label:`. Comments
start with `//`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from heddle.errors import SourceLocation, UserError
from heddle.isa.assemble import control_bits
from heddle.isa.disassemble import instruction_of
from heddle.isa.instruction import Control
from heddle.isa.layouts import RZ, Layout, layout_named
from heddle.isa.rules import violations
from heddle.isa.table import Table, load_table
from heddle.isa.text_match import Matcher, Progress, State
from heddle.isa.words import WORD_BYTES, Words, from_ints

_LINE_LABEL = re.compile(r"\s*([A-Za-z_.$][\w.$]*):\s*$")
_CONTROL = re.compile(r"\s*\[B([0-5-]{6}):R([0-6-]):W([0-6-]):([Y-]):S(\d\d?)(?::U([0-9a-f]))?\]")
_EXTRA = re.compile(r"\{extra=0x([0-9a-f]+)\}\s*;?\s*$")
_GUARD = re.compile(r"\s*@(!?)(U?)P([0-6T])\s+")
_MNEMONIC = re.compile(r"\s*([A-Za-z0-9_]+)")
_RAW = re.compile(r"\s*\.word\s+0x([0-9a-fA-F]{1,32})\s*;?\s*$")
DEFAULT_CONTROL = Control(stall=1)


class ParseError(Exception):
    """What is wrong with a text, and at which of its characters."""

    def __init__(self, message: str, position: int, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.position, self.hint = message, position, hint


@dataclass(frozen=True, slots=True)
class Context:
    """What the text of an instruction may refer to."""

    table: Table
    layout: Layout
    labels: Mapping[str, int]


def parse_program(text: str, architecture: str, layout: str = "heddle", file: str = "<text>") -> Words:
    """Return the words of a listing. Raises UserError with line and column."""
    lines = [line.split("//")[0].rstrip() for line in text.splitlines()]
    labels: dict[str, int] = {}
    address = 0
    code: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if label := _LINE_LABEL.match(line):
            if label.group(1) in labels:
                raise _located(ParseError(f"label {label.group(1)!r} stands twice", label.start(1)), file, number, line)
            labels[label.group(1)] = address
        elif line.strip():
            code.append((number, line))
            address += WORD_BYTES
    context = Context(load_table(architecture), layout_named(layout), labels)
    found = []
    for index, (number, line) in enumerate(code):
        try:
            found.append(_checked(parse_instruction(line, context, index * WORD_BYTES), line, context))
        except ParseError as problem:
            raise _located(problem, file, number, line) from None
    return from_ints(found)


def _checked(word: int, line: str, context: Context) -> int:
    """Return a word that keeps the rules of FIBER fields. Raises ParseError; raw words may say anything."""
    if word >> context.layout.remote & 1 and not _RAW.match(line):
        problem = next(
            violations(instruction_of(word, context.table, context.layout), context.table, context.layout), ""
        )
        if problem:
            start = len(line) - len(line.lstrip())
            named = problem.partition(":")[0].partition(" ")[0]
            raise ParseError(problem, max(line.find(named, start), start))
    return word


def _located(problem: ParseError, file: str, number: int, line: str) -> UserError:
    caret = " " * problem.position + "^"
    message = f"{problem.message}\n  {line}\n  {caret}"
    return UserError(message, where=_Place(file, number, problem.position + 1), hint=problem.hint)


class _Place(SourceLocation):
    """A place in a text that need not be a file: the message has the line itself."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def excerpt(self) -> str:
        """Return nothing: the line is in the message."""
        return ""


def parse_instruction(line: str, context: Context, address: int = 0) -> int:
    """Return the 128-bit word of one line. Raises ParseError."""
    if raw := _RAW.match(line):
        return int(raw.group(1), 16)
    start, control = _control(line)
    extra, end = 0, len(line)
    if found := _EXTRA.search(line):
        extra, end = int(found.group(1), 16), found.start()
    elif ended := re.search(r"\s*;\s*$", line):
        end = ended.start()
    guard = _GUARD.match(line, start, end)
    guard_bits = 7 << 12
    if guard:
        start = guard.end()
        guard_bits = (7 if guard.group(3) == "T" else int(guard.group(3))) << 12 | bool(guard.group(1)) << 15
    word = _best_form(line, start, end, context, address)
    return (word | guard_bits | control_bits(control)) ^ extra


def _control(line: str) -> tuple[int, Control]:
    found = _CONTROL.match(line)
    if not found:
        if line.lstrip().startswith("["):
            raise ParseError("a control field is written [B0-2---:R-:W1:-:S04]", len(line) - len(line.lstrip()))
        return 0, DEFAULT_CONTROL
    wait, read, write, yields, stall, unused = found.groups()
    if any(letter not in (str(place), "-") for place, letter in enumerate(wait)):
        raise ParseError("counters to wait for stand in their own places: B0-2---", found.start(1))
    if int(stall) > 15:
        raise ParseError("a stall count is at most 15", found.start(5))
    waits = sum(1 << place for place, letter in enumerate(wait) if letter != "-")
    barriers = [7 if text == "-" else int(text) for text in (write, read)]
    return found.end(), Control(int(stall), yields == "Y", barriers[0], barriers[1], waits, int(unused or "0", 16))


def _best_form(line: str, start: int, end: int, context: Context, address: int) -> int:
    name = _MNEMONIC.match(line, start, end)
    at = len(line) - len(line[start:].lstrip()) if not name else name.start(1)
    numbers = context.table.by_name.get(name.group(1), ()) if name else ()
    if not name or not numbers:
        raise ParseError(*_unknown(name.group(1) if name else "", at, context.table))
    progress = Progress(at)
    matcher = Matcher(line, context.layout, progress, context.labels, address)
    for number in numbers:
        form = context.table.forms[number]
        state = matcher.match(form, at, end)
        if state is not None:
            _check_places(line, state)
            return form.constant | matcher.finish(form, state)
    expected = sorted(progress.expected)
    shown = ", ".join(expected[:6]) + (", ..." if len(expected) > 6 else "")
    raise ParseError(f"expected {shown}", progress.position)


def _check_places(line: str, state: State) -> None:
    """Raise ParseError for a source without a place where another has one."""
    if all(source.place is None for source in state.sources):
        return
    for source in state.sources:
        if source.place is None and source.index != RZ:
            name = f"R{source.index}"
            message = (
                f"{name} needs a place, as the instruction has remote operands: {name}@own or {name}@0 to {name}@3"
            )
            raise ParseError(message, source.position)


def _unknown(name: str, at: int, table: Table) -> tuple[str, int, str]:
    near = difflib.get_close_matches(name, list(table.by_name), n=1)
    message = f"{table.architecture} has no instruction {name!r}" if name else "expected an instruction"
    return message, at, f"did you mean {near[0]!r}?" if near else ""
