"""Pass 1: divide register tiles among the warps of the role that uses them.

A register tile is spread over all warps of one role. The layouts, by generation and by what a tile is for:
`fragment` (mma.sync): a warp has one block of the tile, cut into 16 x 8 atoms;
`group` (wgmma): warp w has rows [16 w, 16 w + 16) of each band of 16 x warps rows, so that four warps hold 64 rows;
`lane` (tcgen05): warp w has rows [32 w, 32 w + 32) of each band, one row a lane, as tensor memory is read.
`rows` (tiles without products): warp w has row w of each band of as many rows as warps, over all its lanes, each with
eight columns side by side of 256; rows over 16 or 8 lanes lie two or four to a warp, in blocks of 128 or 64 columns.
`columns` (vectors of one row): every warp has a copy, each lane the columns that it has of an atom, two of eight;
`vector` (the same beside `lane` tiles, sm_100): each lane has all columns.
`second` (second operands in registers and what they are made of): warp w has the columns that it has of the product.
Where a `fragment` tile only passes from shared to global memory, a lane has 16 bytes of a row at a time instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

from heddle.errors import SourceLocation, UserError, unknown_name
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import (
    Dequantize,
    Dot,
    Elementwise,
    Fill,
    Gate,
    LoadGlobal,
    LoadShared,
    LoadTensorMemory,
    LookUp,
    LookUpRows,
    Mask,
    Mma,
    MmaApart,
    Op,
    OwnRef,
    PoolRef,
    RegisterTile,
    RoleBody,
    RowReduce,
    StoreGlobal,
    StoreShared,
    StoreTensorMemory,
    TakeToken,
    TileProgram,
)
from heddle.ir.tile_walk import Place, walk_body
from heddle.ir.warp import Access
from heddle.machine.spec import Machine
from heddle.passes.pipelined import FirstFragments, PipelinedMma

LANES = 32
REGISTER_BYTES = 4
OLDER = {"sm_90": ("sm_80",), "sm_100": ("sm_80",)}
"""What a machine runs besides code for itself: it has mma.sync and cp.async, too."""
ATOM_ROWS, ATOM_COLS = 16, 8  # accumulator atom of mma.sync and wgmma (PTX ISA)
ATOM_LANE_COLS = 2  # columns of an atom that a lane has (PTX ISA, matrix fragments)
LANE_COLS = 8  # of the layout `rows`: columns of a lane side by side, 16 bytes of a 16-bit type
Kind = Literal["fragment", "group", "lane", "rows", "columns", "vector", "second"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpLayout:
    """How a warp holds a register tile of its role: `bands` of `rows` x `cols`, each `band_registers` a lane.

    `passing`: the tile only goes from shared to global memory, so that lanes may hold it in pieces of 16 bytes.
    """

    tile: RegisterTile
    kind: Kind
    warps: int
    rows: int
    cols: int
    bands: int
    band_registers: int
    passing: bool = False

    @property
    def row_step(self) -> int:
        """Rows of the tile between two bands of a warp."""
        return self.rows * self.warps

    @property
    def block_cols(self) -> int:
        """Columns of a block of the layout `rows`, in which each lane of a row has eight side by side."""
        return self.tile.row_lanes * LANE_COLS

    @property
    def registers(self) -> int:
        """Registers a lane for the whole tile."""
        return self.bands * self.band_registers

    def band(self, index: int, name: str) -> Access:
        """The part of object `name` that a warp holds in band `index`, by its rank in the role."""
        grid_cols = self.tile.warp_grid[1]
        if self.tile.spread == "operand":  # copies are rows of their own: no weft sees that of another
            return Access(object=name, rows=self.rows, cols=self.cols, rank_row=self.rows, rank_cols=1)
        return Access(
            object=name,
            row=index * self.row_step,
            rows=self.rows,
            cols=self.cols,
            rank_row=self.rows if self.tile.rows > 1 and self.tile.spread != "second" else 0,
            rank_col=self.cols if grid_cols > 1 and self.tile.cols > 1 and self.tile.spread != "first" else 0,
            rank_cols=grid_cols,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOut:
    """A tile program and the layout of each (role, register tile)."""

    program: TileProgram
    layouts: Mapping[tuple[str, str], WarpLayout]


@dataclass(frozen=True, slots=True)
class LayoutToWarps:
    """Give every register tile of every role a `WarpLayout`."""

    def run(self, program: TileProgram, machine: Machine) -> LaidOut:
        """Lay out the program for `machine`. Raises UserError where a tile does not divide."""
        if program.architecture not in (machine.architecture, *OLDER.get(machine.architecture, ())):
            raise UserError(
                f"kernel {program.name} is written for {program.architecture}, {machine.name} is {machine.architecture}"
            )
        tiles = {tile.name: tile for tile in (*program.registers, *program.pool)}
        layouts: dict[tuple[str, str], WarpLayout] = {}
        for role in program.roles:
            for name, where in register_tiles(role.body):
                if name not in tiles:
                    raise unknown_name("register tile", name, tiles, where)
                if (role.name, name) not in layouts:
                    layouts[role.name, name] = layout(tiles[name], role, program.architecture, where)
            for name in _passing(role):
                found = layouts[role.name, name]
                layouts[role.name, name] = replace(found, passing=found.kind == "fragment")
        return LaidOut(program=program, layouts=layouts)


def layout(tile: RegisterTile, role: RoleBody, architecture: str, where: SourceLocation | None) -> WarpLayout:
    """The layout of `tile` over the warps of `role`."""
    grid_rows, grid_cols = tile.warp_grid
    if grid_rows * grid_cols != role.warps and tile.read_by == "own":
        raise UserError(
            f"register tile {tile.name} has a warp grid of {grid_rows} x {grid_cols}, "
            f"role {role.name} has {role.warps} warps",
            where=where,
        )
    if tile.spread == "rows":
        return _whole_rows(tile, where)
    if tile.spread == "columns":
        return _column_vector(tile, architecture, where)
    if tile.spread in ("second", "summed"):
        return _second_operand(tile, where)
    if tile.spread in ("first", "operand"):  # every warp of a row has all columns
        whole = layout(
            replace(tile, warp_grid=(grid_rows, 1), spread="fragments"), _warps(role, grid_rows), "sm_80", where
        )
        return replace(whole, tile=tile, warps=grid_rows * grid_cols)
    kind: Kind = "fragment"
    if architecture == "sm_90" and grid_cols == 1 and grid_rows % 4 == 0:
        kind = "group"
    elif architecture == "sm_100" and grid_cols == 1:
        kind = "lane"
    atom_rows = LANES if kind == "lane" else ATOM_ROWS
    if tile.rows % (atom_rows * grid_rows) or (tile.cols != 1 and tile.cols % (ATOM_COLS * grid_cols)):
        raise UserError(
            f"register tile {tile.name} of {tile.rows} x {tile.cols} does not divide into "
            f"{atom_rows} x {ATOM_COLS} atoms over {grid_rows} x {grid_cols} warps",
            where=where,
            hint=f"rows must be a multiple of {atom_rows * grid_rows}, columns of {ATOM_COLS * grid_cols}",
        )
    rows = tile.rows // grid_rows if kind == "fragment" else atom_rows
    cols = max(1, tile.cols // grid_cols)
    bands = tile.rows // (rows * grid_rows)
    if tile.cols == 1:  # a lane holds the rows that it holds of a matrix tile: two of sixteen, or one of 32
        registers = 1 if kind == "lane" else rows // (ATOM_ROWS // 2)
    else:
        registers = rows * cols * dtype_bytes(tile.dtype, where) // (LANES * REGISTER_BYTES)
    return WarpLayout(
        tile=tile, kind=kind, warps=grid_rows * grid_cols, rows=rows, cols=cols, bands=bands, band_registers=registers
    )


def _warps(role: RoleBody, count: int) -> RoleBody:
    return replace(role, warps=count)


def _whole_rows(tile: RegisterTile, where: SourceLocation | None) -> WarpLayout:
    """The layout of a tile whose rows lie over lanes of a warp; each of these has the values of a column."""
    warps, grid_cols = tile.warp_grid
    block, rows = tile.row_lanes * LANE_COLS, LANES // tile.row_lanes
    if grid_cols != 1 or (tile.cols != 1 and tile.cols % block) or (rows > 1 and tile.rows % (rows * warps)):
        raise UserError(
            f"register tile {tile.name} of {tile.rows} x {tile.cols} over {warps} x {grid_cols} warps cannot be spread "
            f"by rows of {tile.row_lanes} lanes",
            where=where,
            hint=f"columns must be a multiple of {block} (read beyond the tensor: zeros), warps lie along rows, with "
            f"{rows} in each",
        )
    registers = 1 if tile.cols == 1 else rows * tile.cols * dtype_bytes(tile.dtype, where) // (LANES * REGISTER_BYTES)
    return WarpLayout(
        tile=tile,
        kind="rows",
        warps=warps,
        rows=rows,
        cols=tile.cols,
        bands=-(-tile.rows // (rows * warps)),
        band_registers=registers,
    )


def _column_vector(tile: RegisterTile, architecture: str, where: SourceLocation | None) -> WarpLayout:
    """The layout of a row vector of which each lane has the columns that it has of an atom, or of a row."""
    unit = ATOM_COLS * tile.warp_grid[1]
    if tile.rows != 1 or tile.cols % unit or dtype_bytes(tile.dtype, where) != REGISTER_BYTES:
        raise UserError(
            f"register tile {tile.name} of {tile.rows} x {tile.cols} {tile.dtype} cannot be spread by columns",
            where=where,
            hint=f"it is a row vector of a 32-bit type with a multiple of {ATOM_COLS} columns for each warp along them",
        )
    warps = tile.warp_grid[0] * tile.warp_grid[1]
    kind: Kind = "vector" if architecture == "sm_100" else "columns"
    cols = tile.cols // tile.warp_grid[1]
    registers = cols if kind == "vector" else cols // ATOM_COLS * ATOM_LANE_COLS
    return WarpLayout(tile=tile, kind=kind, warps=warps, rows=1, cols=cols, bands=1, band_registers=registers)


def _second_operand(tile: RegisterTile, where: SourceLocation | None) -> WarpLayout:
    """The layout of a tile of which each warp has some columns; a lane has those of its row of an atom of b."""
    cols = tile.cols // tile.warp_grid[1]
    size = dtype_bytes(tile.dtype, where)
    sharing = LANES // ATOM_COLS if tile.rows == 1 else 1  # lanes that have the same column of an atom
    rows = tile.rows // tile.warp_grid[0] if tile.spread == "summed" else tile.rows
    total = rows * cols * size * sharing
    if total % (LANES * REGISTER_BYTES) or cols % ATOM_COLS:
        raise UserError(
            f"register tile {tile.name} of {tile.rows} x {tile.cols} gives {cols} columns to a warp; its {LANES} lanes "
            "cannot share them evenly",
            where=where,
            hint="use wider tiles or fewer warps along the columns",
        )
    return WarpLayout(
        tile=tile,
        kind="second",
        warps=tile.warp_grid[0] * tile.warp_grid[1],
        rows=rows,
        cols=cols,
        bands=1,
        band_registers=total // (LANES * REGISTER_BYTES),
    )


def _passing(role: RoleBody) -> set[str]:
    """Names of the register tiles that are loaded from shared memory, stored to global memory and not used else."""
    uses: dict[str, set[type[Op]]] = {}
    for op, _ in walk_body(role.body, Place(role)):
        for name in _names(op):
            uses.setdefault(name, set()).add(type(op))
    return {name for name, kinds in uses.items() if kinds == {LoadShared, StoreGlobal}}


def register_tiles(body: tuple[Op, ...]) -> Iterator[tuple[str, SourceLocation | None]]:
    """Names of the register tiles that operations use, nested bodies included, with the line of the use."""
    for op in body:
        for name in _names(op):
            yield name, op.where
        for part in fields(op):
            inner = getattr(op, part.name)
            if part.name in ("body", "otherwise") and isinstance(inner, tuple):
                yield from register_tiles(inner)


def _names(op: Op) -> tuple[str, ...]:
    if isinstance(op, MmaApart):
        return op.acc, op.a, op.b
    if isinstance(op, Dot):
        return op.dst, op.a, op.b
    return _names_of_others(op)


def _names_of_others(op: Op) -> tuple[str, ...]:
    match op:
        case LoadGlobal(dst=name) | LoadShared(dst=name) | LoadTensorMemory(dst=name) | Fill(dst=name):
            return (name,)
        case StoreGlobal(src=name) | StoreShared(src=name) | StoreTensorMemory(src=name) | Mask(dst=name):
            return (name,)
        case RowReduce(dst=dst, src=src) | Gate(dst=dst, src=src) | LookUpRows(dst=dst, src=src):
            return (dst, src)
        case Dequantize(dst=dst, src=src, scale=scale, zero=zero):
            return (dst, src, scale, zero)
        case LookUp(dst=dst, upper=upper, src=src, scale=scale):
            return (dst, src, scale) if upper is None else (dst, upper, src, scale)
        case TakeToken(tile=name):
            return (name,)
        case Elementwise(dst=name, sources=sources):
            return (name, *sources)
        case FirstFragments(mma=mma) | PipelinedMma(mma=mma):
            return _names(mma)
        case Mma(acc=acc, a=a, b=b, plus=plus):
            second = b.tile if isinstance(b, PoolRef | OwnRef) else None
            return tuple(name for name in (acc, a, second, plus) if isinstance(name, str))
    return ()
