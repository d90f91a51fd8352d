"""Handles: what a kernel's Python variables hold. Indexing a handle gives a reference for an operation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from heddle.errors import SourceLocation, UserError
from heddle.ir import tile
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.warp import Tensor
from heddle.ir.warp_fiber import SUBPARTITIONS
from heddle.lang._index import Index, as_index
from heddle.lang._where import caller


@dataclass(frozen=True)
class RingPosition:
    """A stage of a ring, `ahead` of the one that the executing warp points to."""

    ring: str
    depth: int
    ahead: int = 0

    def __add__(self, stages: int) -> RingPosition:
        return replace(self, ahead=self.ahead + stages)


@dataclass(frozen=True)
class GlobalBox:
    """A corner in a global tensor; its size comes from the tile at the other end of the copy, or from `size`."""

    tensor: Tensor
    row: Index
    col: Index
    size: tuple[int, int] | None = None
    plane: str | None = None

    def sized(self, rows: int, cols: int) -> GlobalBox:
        """Return the box with an explicit size."""
        return replace(self, size=(rows, cols))

    def reference(self, rows: int, cols: int) -> tile.GlobalRef:
        """Return the box as a reference of `rows` x `cols`."""
        row, col = self.row, self.col
        if row.loop and col.loop and row.loop != col.loop:
            raise UserError(
                f"a box moves with one loop, this one uses {row.loop!r} and {col.loop!r}",
                where=caller(),
                hint="unroll one of them in Python, or put the offset into the work items",
            )
        ahead, row_offset, col_offset = _ahead(row, col)
        return tile.GlobalRef(
            tensor=self.tensor.name,
            rows=rows,
            cols=cols,
            row=row.attribute,
            col=col.attribute,
            loop=row.loop or col.loop,
            ahead=ahead,
            row_step=row.step,
            col_step=col.step,
            cta_row=row.rank_step,
            cta_col=col.rank_step,
            row_offset=row_offset,
            col_offset=col_offset,
            plane=self.plane,
        )


def _ahead(row: Index, col: Index) -> tuple[int, int, int]:
    """Split the constants into iterations of the loop and what remains as offsets."""
    leading = col if col.loop else row
    if not leading.loop or not leading.step or leading.constant % leading.step:
        return 0, row.constant, col.constant
    ahead = leading.constant // leading.step
    return ahead, row.constant - ahead * row.step, col.constant - ahead * col.step


@dataclass(frozen=True)
class GlobalHandle:
    """A tensor in global memory; `A[row, col]` is a corner, in elements; `A[item.plane, row, col]` of three dimensions.

    Boxes stay inside their plane: what lies outside reads as zero and is not written.
    """

    tensor: Tensor

    def __getitem__(self, corner: tuple[Index | int, ...]) -> GlobalBox:
        dimensions = len(self.tensor.shape)
        if not isinstance(corner, tuple) or len(corner) != dimensions:
            form = "[row, col]" if dimensions == 2 else "[plane, row, col]"
            raise UserError(f"index tensor {self.tensor.name!r} as {form}", where=caller())
        row, col = (as_index(index) for index in corner[-2:])
        return GlobalBox(self.tensor, row, col, plane=_plane(corner[0]) if dimensions > 2 else None)


def _plane(index: Index | int) -> str:
    """Return the work item attribute that selects a plane."""
    if not isinstance(index, Index) or index.attribute is None or index.loop or index.constant or index.rank_step:
        raise UserError("a plane is a work item attribute, as in Q[item.head, item.row, 0]", where=caller())
    return index.attribute


@dataclass(frozen=True)
class SharedBox:
    """A part of one stage of a shared tile."""

    handle: SharedHandle
    ref: tile.SharedRef

    def part(self, *, row: int = 0, col: int = 0, rows: int | None = None, cols: int | None = None) -> SharedBox:
        """Return the box of `rows` x `cols` (default: up to the edge) at (row, col) of this one."""
        rows = self.ref.rows - row if rows is None else rows
        cols = self.ref.cols - col if cols is None else cols
        if row < 0 or col < 0 or row + rows > self.ref.rows or col + cols > self.ref.cols:
            raise UserError(
                f"part of {rows} x {cols} at ({row}, {col}) does not lie inside {self.ref.rows} x {self.ref.cols}",
                where=caller(),
            )
        return SharedBox(
            self.handle, replace(self.ref, row=self.ref.row + row, col=self.ref.col + col, rows=rows, cols=cols)
        )

    def below(self, rows: Index) -> SharedBox:
        """Return the box so many rows further down for each rank of the CTA: `box.below(k.cta_rank * 128)`."""
        if not isinstance(rows, Index) or rows.attribute or rows.loop or rows.constant:
            raise UserError("rows by rank are a multiple of k.cta_rank", where=caller())
        return SharedBox(self.handle, replace(self.ref, cta_row=self.ref.cta_row + rows.rank_step))


@dataclass(frozen=True)
class SharedHandle:
    """A shared tile; `sa[ring]` is the stage that a ring points to, `sa[ring + 2]` two stages on, `sa[:]` stage 0."""

    tile: tile.SharedTile

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage."""
        return self.tile.rows * self.tile.cols * dtype_bytes(self.tile.dtype)

    def stage(self, index: int) -> SharedBox:
        """Return a fixed stage, whatever a ring points to."""
        if not 0 <= index < self.tile.stages:
            raise UserError(f"stage {index} is not one of the {self.tile.stages} of {self.tile.name!r}", where=caller())
        ref = tile.SharedRef(tile=self.tile.name, rows=self.tile.rows, cols=self.tile.cols, ahead=index)
        return SharedBox(self, ref)

    def __getitem__(self, at: RingPosition | slice) -> SharedBox:
        ring, ahead = _position(at, self.tile.name)
        ref = tile.SharedRef(tile=self.tile.name, rows=self.tile.rows, cols=self.tile.cols, ring=ring, ahead=ahead)
        return SharedBox(self, ref)


@dataclass(frozen=True)
class RegisterPart:
    """Columns [col, col + cols) of a register tile."""

    handle: RegisterHandle
    col: int
    cols: int


@dataclass(frozen=True)
class RegisterQuarter:
    """The rows of a pool tensor that lie in one subpartition, read by every weft of a role."""

    handle: RegisterHandle
    quarter: int


@dataclass(frozen=True)
class RegisterHandle:
    """A tile in the registers of a role."""

    tile: tile.RegisterTile

    def columns(self, col: int, cols: int) -> RegisterPart:
        """Return `cols` columns from `col` on."""
        if col < 0 or cols < 1 or col + cols > self.tile.cols:
            raise UserError(
                f"columns {col}..{col + cols} do not lie inside register tile {self.tile.name!r} of {self.tile.cols}",
                where=caller(),
            )
        return RegisterPart(self, col, cols)

    def quarter(self, subpartition: int) -> RegisterQuarter:
        """Return the quarter of a pool tensor that lies in a subpartition, as a source of `elementwise`.

        It has a quarter of the rows; of a vector spread by columns, of the columns.
        """
        if self.tile.warp_grid != (SUBPARTITIONS, 1) and self.tile.spread != "columns":
            raise UserError(f"{self.tile.name!r} is not divided among four wefts along its rows", where=caller())
        if not 0 <= subpartition < SUBPARTITIONS:
            raise UserError(
                f"quarter {subpartition} of {self.tile.name!r}; there are 0 to {SUBPARTITIONS - 1}", where=caller()
            )
        return RegisterQuarter(self, subpartition)


@dataclass(frozen=True)
class TensorMemoryBox:
    """A part of one stage of a tensor-memory tile."""

    handle: TensorMemoryHandle
    ref: tile.TmemRef

    def columns(self, col: int, cols: int) -> TensorMemoryBox:
        """Return `cols` columns from `col` on."""
        if col < 0 or cols < 1 or col + cols > self.ref.cols:
            raise UserError(f"columns {col}..{col + cols} do not lie inside {self.ref.cols}", where=caller())
        return TensorMemoryBox(self.handle, replace(self.ref, col=self.ref.col + col, cols=cols))


@dataclass(frozen=True)
class TensorMemoryHandle:
    """A tile in tensor memory; `acc[ring]` is the stage that a ring points to, `acc[:]` stage 0."""

    tile: tile.TensorMemoryTile

    def __getitem__(self, at: RingPosition | slice) -> TensorMemoryBox:
        ring, ahead = _position(at, self.tile.name)
        if ahead:
            raise UserError("tensor memory is indexed by the ring's own stage", where=caller())
        return TensorMemoryBox(
            self, tile.TmemRef(tile=self.tile.name, rows=self.tile.rows, cols=self.tile.cols, ring=ring)
        )


def _position(at: RingPosition | slice, name: str) -> tuple[str | None, int]:
    """Return (ring, ahead) of an index; `[:]` is (None, 0)."""
    if isinstance(at, RingPosition):
        return at.ring, at.ahead
    if isinstance(at, slice) and at == slice(None):
        return None, 0
    raise UserError(f"index {name!r} with a ring, as in {name}[ring] or {name}[ring + 1], or with [:]", where=caller())


@dataclass
class Declarations:
    """All that a kernel has declared; names are unique over all kinds."""

    tensors: list[Tensor] = field(default_factory=list)
    shared: list[tile.SharedTile] = field(default_factory=list)
    registers: list[tile.RegisterTile] = field(default_factory=list)
    pool: list[tile.RegisterTile] = field(default_factory=list)
    tensor_memory: list[tile.TensorMemoryTile] = field(default_factory=list)
    barriers: list[tile.Mbarrier] = field(default_factory=list)
    rings: list[tile.RingDecl] = field(default_factory=list)
    lines: dict[str, SourceLocation] = field(default_factory=dict)

    def claim(self, name: str) -> None:
        """Take a name; raises UserError if it is taken or no identifier."""
        if not name.isidentifier():
            raise UserError(f"{name!r} is no name: use letters, digits and underscores", where=caller())
        if name in self.lines:
            raise UserError(f"{name!r} is declared already, at {self.lines[name]}", where=caller())
        self.lines[name] = caller()
