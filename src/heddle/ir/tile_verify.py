"""Checks a tile program before it is lowered; every error names the line of the kernel."""

from __future__ import annotations

from heddle.ir.tile import TileProgram


def verify(program: TileProgram) -> None:
    """Raise UserError on the first violation."""
