"""Rules of register tiles that are spread by rows or columns: what works on them, and what they do not mix with."""

from __future__ import annotations

from heddle.errors import UserError
from heddle.ir import tile
from heddle.ir.tile_walk import register_reads, register_writes, walk

BY_ROWS = (
    tile.LoadGlobal,
    tile.LoadShared,
    tile.StoreGlobal,
    tile.Fill,
    tile.Elementwise,
    tile.RowReduce,
    tile.LookUpRows,
    tile.Dot,
)
"""Operations on whole rows of a warp: nothing that knows matrix fragments."""
BY_COLUMNS = (tile.LoadGlobal, tile.LoadShared, tile.Elementwise, tile.Dequantize, tile.LookUp)
"""Operations on the columns that a warp multiplies with, beside the product itself."""


LOADED_OR_MULTIPLIED = (tile.LoadShared, tile.LoadGlobal, tile.Mma, tile.MmaApart)
"""What takes a tile spread as first operand."""
ROW_LANES = (8, 16, 32)
"""Lanes over which a row may lie; a row vector has all 32."""


def verify_spread(program: tile.TileProgram) -> None:
    """Raise UserError where a tile spread by rows meets a product, shared or tensor memory, a mask, or fragments.

    What is spread as second operand is loaded, copied, dequantized and multiplied with, and meets only its like.
    """
    _operands(program)
    _pool_operands(program)
    _column_vectors(program)
    _lanes(program)
    tiles = (*program.registers, *program.pool)
    lanes = {register.name: register.row_lanes for register in tiles if register.spread == "rows"}
    by_rows = set(lanes)
    if not by_rows:
        return
    for op, _ in walk(program):
        used = {*register_reads(op), *register_writes(op)}
        if not used & by_rows:
            continue
        name = min(used & by_rows)
        if not isinstance(op, BY_ROWS):
            names = ", ".join(kind.__name__ for kind in BY_ROWS)
            raise UserError(
                f"register tile {name!r} is spread by rows; {type(op).__name__} does not take it",
                where=op.where,
                hint=f"such tiles have {names}; spread it as fragments for anything else",
            )
        if used - by_rows:
            raise UserError(
                f"register tile {name!r} is spread by rows, {min(used - by_rows)!r} as fragments: no lane has both",
                where=op.where,
                hint='declare both with spread="rows", or neither',
            )
        if len({lanes[each] for each in used}) > 1:
            spread = ", ".join(f"{each!r} over {lanes[each]}" for each in sorted(used))
            raise UserError(f"rows lie over different numbers of lanes: {spread}", where=op.where)


def _lanes(program: tile.TileProgram) -> None:
    for register in (*program.registers, *program.pool):
        by_rows = register.spread == "rows" and register.rows > 1
        allowed = ROW_LANES if by_rows else ROW_LANES[-1:]
        if register.row_lanes not in allowed:
            what = "rows" if by_rows else "fragments or a row vector"
            raise UserError(
                f"register tile {register.name!r} of {what} has row_lanes = {register.row_lanes}; "
                f"{' or '.join(map(str, allowed))} is possible"
            )


def _column_vectors(program: tile.TileProgram) -> None:
    """A vector spread by columns is loaded, and a source of elementwise operations on fragments."""
    vectors = {register.name for register in program.registers if register.spread == "columns"}
    for op, _ in walk(program) if vectors else ():
        wrong = vectors & {*register_reads(op), *register_writes(op)}
        if isinstance(op, tile.Elementwise):
            wrong &= {op.dst}
        if wrong and not isinstance(op, tile.LoadShared | tile.LoadGlobal):
            raise UserError(
                f"register tile {min(wrong)!r} is spread by columns; {type(op).__name__} does not take it",
                where=op.where,
                hint="such a vector is loaded, and a source of elementwise operations",
            )


def _pool_operands(program: tile.TileProgram) -> None:
    """Operands in the weft's own subpartition are loaded or made of weights, and multiplied."""
    operands = {tensor.name for tensor in program.pool if tensor.spread == "operand"}
    if operands and program.architecture != "sm_80":
        raise UserError(
            f"pool tensor {min(operands)!r} is spread as operand; {program.architecture} multiplies by shared memory"
        )
    for op, _ in walk(program) if operands else ():
        wrong = operands & {*register_reads(op), *register_writes(op)}
        if wrong and not isinstance(op, (*LOADED_OR_MULTIPLIED, tile.Dequantize, tile.LookUp)):
            raise UserError(
                f"pool tensor {min(wrong)!r} is spread as operand; {type(op).__name__} does not take it",
                where=op.where,
                hint="such tensors are loaded or made of weights, and multiplied",
            )


def _operands(program: tile.TileProgram) -> None:
    seconds = {register.name for register in program.registers if register.spread in ("second", "summed")}
    firsts = {register.name for register in program.registers if register.spread == "first"}
    whole = ("fragments", "operand")
    fragments = {tensor.name for tensor in (*program.registers, *program.pool) if tensor.spread in whole}
    by_rows = fragments if program.mode == "fiber" or program.architecture != "sm_80" else set()
    for op, _ in walk(program):
        used = {*register_reads(op), *register_writes(op)}
        second = op.b.tile if isinstance(op, tile.Mma) and isinstance(op.b, tile.OwnRef) else None
        found = (used - {second}) & seconds
        if second is not None and second not in seconds:
            raise UserError(
                f"register tile {second!r} is second operand of a product, but not spread so",
                where=op.where,
                hint='declare it with spread="second"',
            )
        strange = used & firsts if not isinstance(op, LOADED_OR_MULTIPLIED) else set()
        if strange:
            raise UserError(
                f"register tile {min(strange)!r} is spread as first operand; {type(op).__name__} does not take it",
                where=op.where,
                hint="such tiles are loaded from shared memory and multiplied",
            )
        if not found:
            continue
        name = min(found)
        if not isinstance(op, BY_COLUMNS):
            raise UserError(
                f"register tile {name!r} is spread as second operand; {type(op).__name__} does not take it",
                where=op.where,
            )
        made = {op.dst} & by_rows if isinstance(op, tile.Dequantize | tile.LookUp) else set()
        if used - seconds - made:
            raise UserError(
                f"register tile {name!r} is spread as second operand, {min(used - seconds)!r} is not: no lane has both",
                where=op.where,
            )
