"""`heddle asm`: text of instructions to 128-bit words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.isa_files import Architecture, LayoutName, read_text
from heddle.errors import UserError
from heddle.files import written_whole

EXAMPLE = "heddle asm kernel.sass --architecture sm_90 -o kernel.bin"


def command(
    file: Annotated[str, typer.Argument(help="A listing, as `heddle disasm` writes it; - is standard input.")],
    architecture: Architecture,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Where the words go, 16 bytes each.")],
    layout: LayoutName = "heddle",
) -> None:
    """Assemble a listing to raw little-endian 128-bit words."""
    from heddle.isa.text_parse import parse_program
    from heddle.isa.words import to_bytes

    name = "<standard input>" if file == "-" else file
    words = parse_program(read_text(file), architecture, layout, file=name)
    if not len(words):
        raise UserError(f"{name} has no instruction")
    with written_whole(Path(output)) as target:
        target.write(to_bytes(words))
