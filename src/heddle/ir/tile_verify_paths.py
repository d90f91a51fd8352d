"""Rules on code that only some fibers of a role execute."""

from __future__ import annotations

from collections.abc import Iterable

from heddle.errors import UserError
from heddle.ir import tile
from heddle.ir.tile_walk import body_of, register_reads, register_writes, walk

ALONE = (tile.Fill, tile.Elementwise, tile.RowReduce, tile.Mask, tile.LoadGlobal, tile.StoreGlobal, tile.LoadShared)
"""Operations that a part of a warp's fibers can execute."""


def verify_paths(program: tile.TileProgram) -> None:
    """In a path stand operations that each fiber can do alone, on registers of the role; both paths stand together."""
    pool = {tensor.name for tensor in program.pool}
    for role in program.roles:
        _neighbours(role.body)
    for op, place in walk(program):
        if not place.parted:
            continue
        if not isinstance(op, ALONE):
            raise UserError(
                f"{type(op).__name__} where fibers have parted; it needs all fibers of a warp",
                where=op.where,
                hint="operations there: " + ", ".join(sorted(kind.__name__ for kind in ALONE)),
            )
        shared = next((name for name in (*register_reads(op), *register_writes(op)) if name in pool), None)
        if shared is not None:
            raise UserError(
                f"{type(op).__name__} touches pool tensor {shared!r} where fibers have parted; a weft's accesses to "
                "shared registers are for all its fibers",
                where=op.where,
                hint="copy it to registers of the role before, or back afterwards",
            )


def _neighbours(body: Iterable[tile.Op]) -> None:
    """An OtherFibers follows its Fibers."""
    before: tile.Op | None = None
    for op in body:
        if isinstance(op, tile.OtherFibers) and not isinstance(before, tile.Fibers):
            raise UserError("other fibers than which? It follows the body of some fibers directly", where=op.where)
        _neighbours(body_of(op))
        before = op
