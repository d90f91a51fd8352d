"""What operations of a tile program refer to: declared tiles, barriers and rings, and boxes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTile:
    """`stages` x rows x cols of shared memory; `swizzle_bytes` 128: conflict-free for matrix loads, 0: plain rows.

    `overlays` names a tile whose bytes, row by row of its first stages, this one uses again.
    """

    name: str
    rows: int
    cols: int
    dtype: str
    stages: int = 1
    swizzle_bytes: int = 128
    overlays: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTile:
    """rows x cols spread over the warps of a role; `warp_grid` = warps along (rows, cols).

    `spread`: as matrix fragments; or whole "rows" a warp, each over `row_lanes` lanes, and as many of them side by side
    as a warp has room for. A tile of one row is then a row vector of which every warp has a copy. "columns": such a
    vector beside fragments, of which each lane has the columns that it has of a fragment, two of eight, or
    all of them where a lane has a row (sm_100).
    "second": second operand of products, or what it is made of; each warp has the columns that its columns of a product
    need, all rows of them, and warps above each other have copies. Such a 16-bit tile of 16 rows or more is the operand
    itself, [k, n]; of one row, a value of each column, which all lanes with elements of the column have; others are
    packed, 16 bytes a lane where there are as many. "first": the first operand [m, k] beside such a second one; each
    warp has the rows that its rows of the product need, and warps beside each other have copies. "summed" (mode fiber):
    what second operands are made of, divided among warps along the rows, the summed extent, with all columns.
    "operand" (pool tensors on sm_80): first or second operand [rows, k] of products whose wefts find both operands in
    their own subpartition; each weft has the rows of its part of the product, and wefts beside each other have copies.

    `read_by` (pool tensors): each weft of the reading role reads its own rows; or "all": wefts read all rows wherever
    they lie, up to one weft in each subpartition, as second operand of products or quarter by quarter. `overlays`
    names an fp32 tile of the same shape whose registers, from the first on, this one takes while its elements are
    regrouped into it (`cast_regrouped`), or cast to 16 bits; they are gone then.
    """

    name: str
    rows: int
    cols: int
    dtype: str
    warp_grid: tuple[int, int]
    read_by: Literal["own", "all"] = "own"
    spread: Literal["fragments", "rows", "columns", "first", "second", "summed", "operand"] = "fragments"
    row_lanes: int = 32
    overlays: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMemoryTile:
    """`stages` x rows x cols in tensor memory (sm_100); 32-bit columns, 128 lanes a CTA.

    `overlays` names a tile whose columns, stage by stage, this one uses again, from 32-bit column `overlay_col` on.
    """

    name: str
    rows: int
    cols: int
    dtype: str
    stages: int = 1
    overlays: str | None = None
    overlay_col: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mbarrier:
    """`count` mbarriers that complete after `arrivals` arrivals and all expected bytes."""

    name: str
    count: int
    arrivals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RingDecl:
    """A ring of `depth` stages; every warp keeps its own (stage, phase)."""

    name: str
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalRef:
    """A rows x cols box of a global tensor, or of plane item[plane] of a tensor of three dimensions.

    Its corner is (item[row] + counter * row_step, item[col] + counter * col_step), where `row`, `col` name work item
    attributes in elements (None: 0) and `loop` names the loop whose counter (+ `ahead`) moves the box. `row_offset`,
    `col_offset` elements are added, and `cta_row`, `cta_col` for each rank of the CTA in its cluster. What lies outside
    the tensor reads as zero and is not written.
    """

    tensor: str
    rows: int
    cols: int
    row: str | None = None
    col: str | None = None
    loop: str | None = None
    ahead: int = 0
    row_step: int = 0
    col_step: int = 0
    cta_row: int = 0
    cta_col: int = 0
    row_offset: int = 0
    col_offset: int = 0
    plane: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A row or column number that is known when the kernel runs: item[attribute] + counter(loop) * step + constant.

    `cta_step` is added for each rank of the CTA in its cluster.
    """

    constant: int = 0
    attribute: str | None = None
    loop: str | None = None
    step: int = 0
    cta_step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRef:
    """A box of a shared tile at the stage that `ring` points to (+ `ahead` stages), or at stage 0 without a ring.

    `cta_row` rows are added for each rank of the CTA in its cluster.
    """

    tile: str
    rows: int
    cols: int
    ring: str | None = None
    ahead: int = 0
    row: int = 0
    col: int = 0
    cta_row: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRef:
    """A pool tensor as second operand of a product, read by all four subpartitions (mode fiber)."""

    tile: str
    rows: int
    cols: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRef:
    """A register tile of the role as second operand of a product."""

    tile: str
    rows: int
    cols: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TmemRef:
    """A box of a tensor-memory tile at the stage that `ring` points to."""

    tile: str
    rows: int
    cols: int
    ring: str | None = None
    row: int = 0
    col: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierUse:
    """Element of an mbarrier ring: stage of `ring` + `ahead`. `flip`: a producer's wait. `cta`: whose barrier."""

    name: str
    ring: str | None = None
    ahead: int = 0
    flip: bool = False
    cta: Literal["own", "leader", "all", "peer"] = "own"
