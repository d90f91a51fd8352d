"""What does the text of a warp program look like, and what does the parser say about bad text?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heddle.errors import UserError
from heddle.ir.warp import Control, Count, Instruction, Register, Role, Source, WarpProgram, Work
from heddle.ir.warp_text import parse_program, print_program, read_program
from heddle.ir.work_text import INLINE_ITEMS

TEXT = """\
warp_program tiny architecture=sm_90
work static grid=1 attributes=[k_tiles]
item 3
role all first_warp=0 warps=4 entry=L0 registers_per_thread=64
source tiny.py line=7 operation=add  // 0

code
L0:
  [B------:R-:W-:S04] FADD R4 = R5.reuse, RZ  // tiny.py:7 add
  [B0-----:R-:W1:S01] LDS R8:4 = R6 bytes=512  // tiny.py:7 add
  [B------:R-:W-:S01] LOOP count=k_tiles-1 -> L0  // tiny.py:7 add
  [B------:R-:W-:S01] EXIT  // tiny.py:7 add
"""


RZ_READ = Register(255)


def tiny() -> WarpProgram:
    """The program that TEXT describes."""
    return WarpProgram(
        name="tiny",
        architecture="sm_90",
        instructions=(
            Instruction(op="FADD", dst=Register(4), src=(Register(5, 1, True), RZ_READ), control=Control(stall=4)),
            Instruction(
                op="LDS",
                dst=Register(8, 4),
                src=(Register(6),),
                control=Control(wait=frozenset({0}), write_barrier=1),
                bytes=512,
            ),
            Instruction(op="LOOP", target=0, count=Count(attribute="k_tiles", offset=-1)),
            Instruction(op="EXIT"),
        ),
        roles=(Role(name="all", first_warp=0, warps=4, entry=0, registers_per_thread=64),),
        work=Work(attributes=("k_tiles",), items=np.array([[3]]), schedule="static", grid=1),
        sources=(Source(file="tiny.py", line=7, operation="add"),),
    )


def test_printer_writes_the_documented_form() -> None:
    assert print_program(tiny()) == TEXT


def test_parser_reads_the_documented_form() -> None:
    assert parse_program(TEXT) == tiny()


def test_comments_blank_lines_and_own_labels_are_free() -> None:
    loose = TEXT.replace("L0", "start").replace("\ncode", "\n\n// the body\ncode")
    assert parse_program(loose) == tiny()


def test_large_work_tables_are_compressed_and_come_back() -> None:
    items = np.arange(INLINE_ITEMS + 4, dtype=np.int64).reshape(-1, 4) - 7
    work = Work(attributes=("a", "b", "c", "d"), items=items, schedule="launch", grid=1)
    program = WarpProgram(name="big", architecture="sm_80", instructions=(), roles=(), work=work)
    text = print_program(program)
    assert "item " not in text
    assert parse_program(text) == program


def test_file_is_read_with_its_name_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "bad.warp"
    path.write_text(TEXT.replace("FADD", "FDA"))
    with pytest.raises(UserError, match=r"bad\.warp:9:23: unknown opcode 'FDA'"):
        read_program(path)


def test_missing_file_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read warp program"):
        read_program(tmp_path / "none.warp")


def test_error_shows_the_line_and_a_caret_and_the_nearest_name() -> None:
    with pytest.raises(UserError) as caught:
        parse_program(TEXT.replace("bytes=512", "byte=512"))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("<text>:10:37: unknown field 'byte'; allowed: ")
    assert lines[1] == "    [B0-----:R-:W1:S01] LDS R8:4 = R6 byte=512  // tiny.py:7 add"
    assert lines[2] == " " * (2 + 36) + "^"
    assert lines[3] == "  hint: did you mean 'bytes'?"


BAD = [
    ("-> L0", "-> nowhere", "unknown label 'nowhere'"),
    ("L0:\n", "L0:\nL0:\n", "label 'L0' is already in front of instruction 0"),
    ("item 3", "item 3 4", "this item has 2 values; the work has 1 attributes"),
    ("item 3", "item 3.5", "expected an item attribute, an integer, got '3.5'"),
    ("work static", "work often", "unknown value 'often'; allowed: dynamic, launch, static"),
    ("warps=4 ", "", "role 'all' has no 'warps'"),
    ("warps=4 ", "warps=4 warps=4 ", "field 'warps' is given twice"),
    ("bytes=512", "bytes=many", "expected a number, an integer, got 'many'"),
    ("bytes=512", "bytes=512 )", "expected the end of the line, got ')'"),
    ("bytes=512", "bytes=512 ?", "cannot read '?"),
    ("[B0-----:R-:W1:S01]", "[B-0----:R-:W1:S01]", "counter k of a wait mask stands in place k"),
    ("[B0-----:R-:W1:S01] ", "", "expected a control field such as"),
    ("R8:4 = R6", "R8:4 = R6 = R7", "one destination, in front of its sources"),
    ("work static grid=1 attributes=[k_tiles]\nitem 3\n", "", "the program has no work line"),
    ("warp_program tiny architecture=sm_90\n", "", "expected 'warp_program' on the first line"),
    ("role all", "rolle all", "unknown declaration 'rolle'"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[message for _, _, message in BAD])
def test_bad_text_is_refused(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(UserError) as caught:
        parse_program(TEXT.replace(old, new, 1))
    assert message in str(caught.value)


def test_damaged_compressed_items_are_refused() -> None:
    text = TEXT.replace("item 3\n", 'items rows=2 zlib_base64=\n  "AAAA"\n')
    with pytest.raises(UserError, match="compressed items are damaged"):
        parse_program(text)
