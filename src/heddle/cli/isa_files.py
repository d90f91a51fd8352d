"""What the commands on instruction words share: options, and input from files or standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from heddle.errors import UserError

Architecture = Annotated[
    str, typer.Option("--architecture", "-a", metavar="SM", help="Instruction set: sm_80, sm_90 or sm_100.")
]
LayoutName = Annotated[
    str, typer.Option("--layout", metavar="NAME", help="Where the FIBER fields lie: heddle, or paper.")
]


def read_bytes(file: str) -> bytes:
    """Return the bytes of a file, or of standard input for `-`. Raises UserError."""
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {file!r}: {error.strerror or error}") from error


def read_text(file: str) -> str:
    """Return the text of a file, or of standard input for `-`. Raises UserError."""
    try:
        return read_bytes(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file!r} is no text: {error.reason} at byte {error.start}") from error
