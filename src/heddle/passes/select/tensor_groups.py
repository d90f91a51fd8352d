"""Tensor memory as registers (mode fiber): groups of 32 columns, each with one pair of bits in a subpartition.

Instructions of mode fiber name the columns that they touch as they name registers, so tiles lie at places that are
known when the kernel is written: a tile has one stage, and whole groups.
"""

from __future__ import annotations

from collections.abc import Iterator

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import TensorMemoryTile, TileProgram, TmemRef
from heddle.ir.warp_fiber import TENSOR_COLUMNS
from heddle.passes.draft import Operand, Value
from heddle.passes.select.sm_100 import tmem_tile
from heddle.passes.select.writer import RoleWriter

COLUMN_BYTES = 4
FIRST_ID = -(1 << 20)
"""Ids of the values of tensor memory: below those of pool tensors."""


def first_groups(program: TileProgram) -> Iterator[tuple[TensorMemoryTile, int, int]]:
    """Yield (tile, first group, groups) of each tile, side by side in the order of their declaration."""
    first = 0
    for tile in program.tensor_memory:
        groups = tile.cols * dtype_bytes(tile.dtype) // COLUMN_BYTES // TENSOR_COLUMNS
        yield tile, first, groups
        first += groups


def tensor_value(program: TileProgram, name: str) -> Value:
    """The value that stands for a tile of tensor memory, the same in every role."""
    for index, (tile, _, groups) in enumerate(first_groups(program)):
        if tile.name == name:
            return Value(FIRST_ID - index, tile.name, groups, 1, "tensor", tile.name)
    raise KeyError(name)


def tensor_groups(writer: RoleWriter, box: TmemRef, *, whole: bool = False) -> Operand:
    """The groups that the columns of a box lie in. Raises UserError where they are not (`whole`) all of them."""
    tile = tmem_tile(writer, box.tile)
    width = TENSOR_COLUMNS * COLUMN_BYTES // dtype_bytes(tile.dtype)
    if box.ring or tile.stages > 1 or tile.overlays:
        raise UserError(
            f"tensor-memory tile {tile.name} has stages, or overlays another; in mode fiber an instruction names its "
            "columns, so a tile has one place",
            where=writer.where,
            hint="declare a tile for each stage, and unroll the loop over them in Python",
        )
    if tile.cols % width or (whole and (box.col % width or box.cols % width)):
        raise UserError(
            f"columns {box.col} to {box.col + box.cols} of {tile.name} ({tile.cols} columns): full and empty bits are "
            f"for groups of {width} columns",
            where=writer.where,
        )
    first = box.col // width
    return Operand(tensor_value(writer.program, tile.name), first, -(-(box.col + box.cols) // width) - first)
