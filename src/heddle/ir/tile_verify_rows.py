"""Shape rules of look-ups and dot products on tiles that are spread by rows, and of copies through registers."""

from __future__ import annotations

from typing import Protocol

from heddle.errors import UserError
from heddle.ir import tile

CODE_VALUES = 1 << 16
"""Of a code: 16 bits, which several codebooks share evenly."""


class Tiles(Protocol):
    """What is known of tiles by name."""

    def shape(self, name: str) -> tuple[int, int]:
        """Return rows and columns."""

    def dtype(self, name: str) -> str:
        """Return the element type."""


def verify_look_up_rows(op: tile.LookUpRows, tiles: Tiles) -> None:
    """Raise UserError where there are too few codes, or they are not of this codebook."""
    (rows, cols), (code_rows, codes) = tiles.shape(op.dst), tiles.shape(op.src)
    if code_rows != rows or cols % tile.CODE_WEIGHTS or cols // tile.CODE_WEIGHTS > codes:
        raise UserError(
            f"{op.dst!r} of {rows} x {cols} is not looked up by {op.src!r} of {code_rows} x {codes}",
            where=op.where,
            hint=f"as many rows, and a code for {tile.CODE_WEIGHTS} columns",
        )
    if (tiles.dtype(op.dst), tiles.dtype(op.src)) != ("fp16", "uint16"):
        raise UserError(
            f"codes of uint16 choose entries of fp16, not {tiles.dtype(op.src)} of {tiles.dtype(op.dst)}",
            where=op.where,
        )
    most = op.books * round(CODE_VALUES ** (1 / op.books)) if op.books in (1, 2) else 0
    if op.codebook.rows > most or op.codebook.cols % tile.CODE_WEIGHTS:
        raise UserError(
            f"codes choose among {most} entries of {tile.CODE_WEIGHTS} weights, of one codebook or two together; the "
            f"codebook is {op.codebook.rows} x {op.codebook.cols}, books = {op.books}",
            where=op.where,
        )


def verify_dot(op: tile.Dot, tiles: Tiles) -> None:
    """Raise UserError where the row vector does not lie beside columns of the other operand."""
    (rows, cols), (vectors, width) = tiles.shape(op.a), tiles.shape(op.b)
    if vectors != 1 or tiles.shape(op.dst) != (rows, 1) or not 0 <= op.a_col <= cols - width:
        raise UserError(
            f"{op.b!r} of {vectors} x {width} is no row vector beside columns of {op.a!r} ({rows} x {cols}) from "
            f"{op.a_col} on, or {op.dst!r} no column of as many rows",
            where=op.where,
        )
    types = tuple(tiles.dtype(name) for name in (op.dst, op.a, op.b))
    if types != ("fp32", "fp16", "fp16"):
        raise UserError(f"dot products of fp16 are added up in fp32, not {', '.join(types)}", where=op.where)


def verify_copy_through(op: tile.CopyThrough, tiles: Tiles) -> None:
    """Raise UserError where box and copy differ, or the last copy lies outside."""
    rows, cols = tiles.shape(op.dst.tile)
    if (op.dst.rows, op.dst.cols) != (op.src.rows, op.src.cols):
        raise UserError(
            f"the destination is {op.dst.rows} x {op.dst.cols}, expected {op.src.rows} x {op.src.cols}", where=op.where
        )
    if op.copies < 1 or op.dst.col + op.copies * op.dst.cols > cols:
        raise UserError(
            f"{op.copies} copies of {op.dst.cols} columns do not lie side by side in {op.dst.tile!r} of "
            f"{rows} x {cols}",
            where=op.where,
        )
