"""`heddle disasm`: 128-bit words to text that `heddle asm` reads back."""

from __future__ import annotations

from typing import Annotated

import typer

from heddle.cli.common import write_text
from heddle.cli.isa_files import Architecture, LayoutName, read_bytes

EXAMPLE = "heddle disasm kernel.bin --architecture sm_90"


def command(
    file: Annotated[str, typer.Argument(help="Raw words, 16 bytes each, or with --hex text; - is standard input.")],
    architecture: Architecture,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Where the listing goes.")] = "-",
    layout: LayoutName = "heddle",
    hexadecimal: Annotated[bool, typer.Option("--hex", help="The file has words of 32 hexadecimal digits.")] = False,
) -> None:
    """Disassemble raw words: what NVIDIA's tools print, with control fields and FIBER operands."""
    from heddle.isa.listing import listing
    from heddle.isa.words import from_bytes, from_ints

    data = read_bytes(file)
    words = from_ints(_hexadecimal(data)) if hexadecimal else from_bytes(data)
    write_text("".join(line + "\n" for line in listing(words, architecture, layout)), output)


def _hexadecimal(data: bytes) -> list[int]:
    from heddle.errors import UserError

    found = []
    for number, word in enumerate(data.decode("ascii", "replace").split(), 1):
        digits = word.removeprefix("0x")
        if len(digits) > 32 or any(digit not in "0123456789abcdefABCDEF" for digit in digits) or not digits:
            raise UserError(f"word {number}, {word[:40]!r}, is no number of up to 32 hexadecimal digits")
        found.append(int(digits, 16))
    return found
