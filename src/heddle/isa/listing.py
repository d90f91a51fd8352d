"""Words as a listing that `text_parse` reads back to the same words."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from heddle.isa.disassemble import control_of, instruction_of
from heddle.isa.layouts import Layout, layout_named
from heddle.isa.rules import violations
from heddle.isa.table import Table, load_table
from heddle.isa.text_format import text_of
from heddle.isa.text_parse import Context, ParseError, parse_instruction
from heddle.isa.words import WORD_BYTES, Words, to_ints


def listing(words: Words, architecture: str, layout: str = "heddle") -> Iterator[str]:
    """Yield a line a word. What the text of an instruction does not show of its word follows as `{extra=0x...}`."""
    table, names = load_table(architecture), layout_named(layout)
    for index, word in enumerate(to_ints(words)):
        yield line_of(word, table, names, index * WORD_BYTES)


def line_of(word: int, table: Table, layout: Layout, address: int = 0) -> str:
    """Return the line of one word; one that no text stands for, or that breaks a rule of `rules`, as `.word`."""
    text = text_of(word, table, layout, address)
    remote = word >> layout.remote & 1
    if text is None or (remote and any(violations(instruction_of(word, table, layout), table, layout))):
        return f".word 0x{word:032x}"
    line = f"{control_text(word)} {text}"
    try:
        extra = word ^ parse_instruction(line, _context(table, layout), address)
    except ParseError:
        return f".word 0x{word:032x}"  # a float that no text stands for, say
    return f"{line} {{extra={extra:#x}}}" if extra else f"{line} ;"


@lru_cache
def _context(table: Table, layout: Layout) -> Context:
    return Context(table, layout, {})


def control_text(word: int) -> str:
    """Return the control field: waits, counters at operand read and write-back, yield, stall; reuse is at operands."""
    control = control_of(word)
    waits = "".join(str(number) if control.wait >> number & 1 else "-" for number in range(6))
    read, write = ("-" if barrier == 7 else str(barrier) for barrier in (control.read_barrier, control.write_barrier))
    return f"[B{waits}:R{read}:W{write}:{'Y' if control.yields else '-'}:S{control.stall:02}]"
