"""The note of a compiled kernel: what instruction words cannot carry, as text.

First the declarations of the warp program (docs/reference/warp_program.md, without code), then `rows`, then one line
`PC field=value ...` for each row with something that its word does not say: streams, mbarriers, loop counts, effects,
source lines. The format is versioned by the number after `rows`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace

from heddle.errors import InternalError, UserError
from heddle.ir.field_reader import read_fields
from heddle.ir.text_cursor import LineCursor
from heddle.ir.warp import Instruction, Register, WarpProgram
from heddle.ir.warp_parser import parse_program
from heddle.ir.warp_printer import print_program, value_text
from heddle.isa.emission.decode import words_rows
from heddle.isa.emission.encode import program_words
from heddle.isa.words import Words

COUNTER, REUSE = "write_barrier", "reuse"
VERSION = 1
ROWS = "rows"
NOTED = frozenset(
    {"op", "stream", "barrier", "semaphore", "count", "attribute", "effect", "source", "advance"}
    | {"bytes", "conflict_ways", "pending", "warps", "shape", "dtype"}
)
"""Fields of rows that the note may hold; words say the others, always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedRow(Instruction):
    """What a line says of a row that its word has no place for, beside fields of the row.

    `write_barrier`: of the control field; `reuse`: numbers of the sources with an operand cache bit.
    """

    write_barrier: int | None = None
    reuse: tuple[int, ...] = ()


def words_and_note(program: WarpProgram, layout: str = "heddle") -> tuple[Words, str]:
    """Return the words of a program and the text of its note. Raises UserError for what has no encoding."""
    words = program_words(program, layout)
    head = replace(program, instructions=())
    read = words_rows(words, head, layout)
    lines = [print_program(head), f"{ROWS} {VERSION}"]
    lines += _lines(program, read)
    return words, "\n".join(lines) + "\n"


def program_of(words: Words, note: str, file: str = "<note>", layout: str = "heddle") -> WarpProgram:
    """Return the program of words and a note. Raises UserError where they make no sense, or not together."""
    head, rows = _parts(note, file)
    read = list(words_rows(words, head, layout))
    for number, line in rows:
        cursor = LineCursor(file, number, line)
        token = cursor.peek
        pc = cursor.integer("the number of a row")
        if not 0 <= pc < len(read):
            cursor.fail(f"row {pc}; the program has {len(read)}", token)
        fields = read_fields(cursor, NotedRow, _SAID_BY_WORDS, parenthesised=False)
        cursor.expect_end()
        if COUNTER in fields:
            fields["control"] = replace(read[pc].control, write_barrier=fields.pop(COUNTER))
        if REUSE in fields:
            fields["src"] = _reused(read[pc].src, fields.pop(REUSE))
        read[pc] = replace(read[pc], **fields)
    return replace(head, instructions=tuple(read))


_SAID_BY_WORDS = frozenset(field.name for field in dataclasses.fields(Instruction)) - NOTED


def _reused(sources: tuple[Register, ...], numbers: tuple[int, ...]) -> tuple[Register, ...]:
    return tuple(replace(r, reuse=True) if number in numbers else r for number, r in enumerate(sources))


def _lines(program: WarpProgram, read: tuple[Instruction, ...]) -> Iterator[str]:
    for pc, (row, found) in enumerate(zip(program.instructions, read, strict=True)):
        texts = []
        if row.control != found.control and replace(row.control, write_barrier=None) == found.control:
            texts.append(f"{COUNTER}={row.control.write_barrier}")
            found = replace(found, control=row.control)
        left = tuple(k for k, (a, b) in enumerate(zip(row.src, found.src, strict=False)) if a.reuse and not b.reuse)
        if left:
            texts.append(f"{REUSE}={value_text(left)}")
            found = replace(found, src=_reused(found.src, left))
        for field in dataclasses.fields(Instruction):
            value = getattr(row, field.name)
            if value == getattr(found, field.name):
                continue
            if field.name not in NOTED:
                said = getattr(found, field.name)
                raise InternalError(f"instruction {pc} ({row.op}): its word says {field.name} = {said}, not {value}")
            texts.append(f"{field.name}={value_text(value)}")
        if texts:
            yield f"{pc} " + " ".join(texts)


def _parts(note: str, file: str) -> tuple[WarpProgram, list[tuple[int, str]]]:
    """Return the declarations as a program without rows, and the lines of rows with their numbers."""
    lines = note.splitlines()
    at = next((k for k, line in enumerate(lines) if line.startswith(ROWS + " ")), None)
    if at is None:
        raise UserError(f"{file}: the note has no line '{ROWS}'")
    version = lines[at].split()[1]
    if version != str(VERSION):
        raise UserError(f"{file}: the note has version {version}; this program reads version {VERSION}")
    head = parse_program("\n".join(lines[:at]), file=file)
    numbered = [(k + 1, line) for k, line in enumerate(lines) if k > at and line.strip()]
    return head, numbered
