"""Register operands of an operation: whole tiles, parts of columns, and what they have to be."""

from __future__ import annotations

from heddle.errors import UserError
from heddle.lang._handles import RegisterHandle, RegisterPart
from heddle.lang._where import caller

Registers = RegisterHandle | RegisterPart


def register_operand(value: Registers, what: str) -> tuple[str, int, int, int]:
    """Return (name, first column, rows, columns) of a register operand."""
    if isinstance(value, RegisterHandle):
        return value.tile.name, 0, value.tile.rows, value.tile.cols
    if isinstance(value, RegisterPart):
        return value.handle.tile.name, value.col, value.handle.tile.rows, value.cols
    raise UserError(f"{what} must be a register tile, got {type(value).__name__}", where=caller())


def check_equal(what: str, got: tuple[int, int], wanted: tuple[int, int]) -> None:
    """Raise UserError if (rows, columns) are not those that are wanted."""
    if got != wanted:
        raise UserError(f"{what} is {got[0]} x {got[1]}, expected {wanted[0]} x {wanted[1]}", where=caller())


def whole_tile(value: Registers, what: str) -> str:
    """Return the name of a whole register tile; parts may only be sources."""
    if isinstance(value, RegisterPart):
        raise UserError(f"{what} must be a whole register tile; a part of columns can only be a source", where=caller())
    return register_operand(value, what)[0]
