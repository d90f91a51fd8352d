"""The operations of a tile program that compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heddle.ir.tile_ops import Op
from heddle.ir.tile_refs import BarrierUse, GlobalRef, OwnRef, PoolRef, Position, SharedRef, TmemRef

OWN_ROWS = -1
"""Of a source: each weft reads the rows that it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill(Op):
    """Set all elements of a register tile."""

    dst: str
    value: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise(Op):
    """dst = function(sources) element by element on register tiles of equal layout: add, mul, sub, max, exp2, cast, ...

    A source of one column is broadcast over the columns. `source_cols`, if given, is the first column that each source
    takes part with; the part has the size of `dst`, or of its columns [dst_col, dst_col + dst_cols) if that is not 0.
    `source_quarters`, if given, is for each source the quarter of a pool tensor's rows, in the subpartition of that
    number, that every weft of the role reads; -1: the weft's own rows.
    """

    function: str
    dst: str
    sources: tuple[str, ...]
    scalars: tuple[float, ...] = ()
    source_cols: tuple[int, ...] = ()
    source_quarters: tuple[int, ...] = ()
    dst_col: int = 0
    dst_cols: int = 0

    def quarter(self, index: int) -> int | None:
        """The quarter that source `index` is; None: the weft's own rows."""
        quarter = self.source_quarters[index] if self.source_quarters else OWN_ROWS
        return None if quarter == OWN_ROWS else quarter


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReduce(Op):
    """dst[row] = max or sum over the columns of src, and over dst's old value if `accumulate`; dst has one column.

    Without `across_lanes` each lane keeps the result of its own columns, and a later reduction of dst brings the lanes
    that share a row together. (Executed with numbers, dst holds the whole result at once.) `src_cols` columns from
    `src_col` on take part; 0: all.
    """

    function: str
    dst: str
    src: str
    accumulate: bool = False
    across_lanes: bool = True
    src_col: int = 0
    src_cols: int = 0


GATE_COLUMNS = 8
"""Neighbouring columns that are gates; as many factors follow. One atom of a fragment: a thread has both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Op):
    """dst = silu(gate) * factor; of each 16 columns of src, from `src_col` on, 8 are gates and 8 their factors.

    src has, or its part takes, twice the columns of dst.
    """

    dst: str
    src: str
    src_col: int = 0


CODE_COLUMNS = 4
"""Bytes that hold eight 4-bit weights of a column, along the summed extent."""
CODE_WEIGHTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Dequantize(Op):
    """dst = (weight - zero) * scale; dst [k, n] of fp16, 4-bit weights in `src` [k / 8, 4 n] of bytes, low half first.

    `scale` and `zero` have one row, a value of each column. `src_row`: the first row of src that takes part. Mode
    fiber on sm_80: dst is a pool tensor [n, k] that is divided along k, as src is. sm_90, sm_100: dst [n, k] is a first
    operand, whose rows lie with the warps that have the same columns of src.
    """

    dst: str
    src: str
    scale: str
    zero: str
    src_row: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp(Op):
    """[dst; upper] = sum of codebook entries * scale, 16 rows of fp16 each; an entry is eight weights of a column.

    `src` [k / 8, books n] has the codes, those of a column's `books` codebooks side by side; `codebook` [entries, 8],
    or in shared memory copies of it side by side, has one codebook under the other. `scale` has one row, a value of
    each column. `src_row`: the first row of src that takes part. Without `upper` dst is [n, k] with all of k,
    where that of `Dequantize` is.
    """

    dst: str
    upper: str | None = None
    src: str
    scale: str
    codebook: SharedRef | GlobalRef
    books: int = 1
    src_row: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpRows(Op):
    """dst [n, k] = sum of codebook entries, fp16; an entry is eight neighbours of a row. No scale is applied.

    `src` [n, k / 8 or more] of uint16 has the codes of the first columns; where there are two `books`, a code is a byte
    of each, the first in the low half. `codebook` is that of `LookUp`. All tiles are spread by rows.
    """

    dst: str
    src: str
    codebook: SharedRef | GlobalRef
    books: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot(Op):
    """dst[row] += sum of a * b over columns [a_col, a_col + columns of b) of a; b is a row vector, both are fp16.

    Products of eight neighbours are added up in fp16, the even and the odd ones apart, and these sums in fp32. Each
    lane keeps the sum of its own columns, until `row_reduce("sum", dst, dst)`. All tiles are spread by rows.
    """

    dst: str
    a: str
    b: str
    a_col: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask(Op):
    """Set elements of a register tile that do not take part to `value`.

    Element (r, c) is at row + r, col + c. It keeps its value if its column is below `limit` (0: no limit) and, with
    `causal`, not above (row + r) // row_divisor + diagonal. `row_divisor`: rows that share a query (packed heads).
    `transposed`: rows are keys and columns queries; what is said of rows holds for columns, and the other way round.
    `warp_cols`: the columns of warp w of the role lie w times so many further on.
    """

    dst: str
    row: Position
    col: Position
    causal: bool = False
    limit: int = 0
    diagonal: int = 0
    row_divisor: int = 1
    value: float = float("-inf")
    transposed: bool = False
    warp_cols: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaApart(Op):
    """Each of the four wefts of a role multiplies what it holds itself (mode fiber, sm_80): acc += a @ b.T.

    A weft has 16 rows of `acc`, and the rows of `b` [n, k] that it has loaded or made; with `b_transposed`, b is [k, n]
    and acc += a @ b. `a` are 16 rows of its own, or, spread as first operand, 16 of which each weft has a copy. So the
    four work on different data, as on different keys of the same queries. With `a_transposed`, a is [k, m]: a pool
    tensor divided along its columns, 16 of which are the weft's rows of the sum.
    """

    acc: str
    a: str
    b: str
    accumulate: bool = True
    b_transposed: bool = False
    a_transposed: bool = False


FOLDED_ROWS = 64
"""Rows a CTA of a pair with m = 128, whose accumulators lie in all 128 lanes (PTX ISA, tcgen05 data path layouts)."""


def is_folded(rows: int, ctas: int) -> bool:
    """Tell whether the accumulator of a CTA with `rows` rows of a product is folded."""
    return ctas > 1 and rows == FOLDED_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Mma(Op):
    """acc += a @ b.T with a [m, k] and b [n, k]; with `b_transposed`, b is [k, n] and acc += a @ b.

    `a_transposed`: a, of 16 bits, is [k, m]. It lies in shared memory (mode fiber: on sm_100), or in the pool, divided
    along its columns among the wefts that multiply (mode fiber on sm_80).

    `plus` (mode fiber): acc = plus + a @ b.T. The chain accumulates in `plus`, and its last step writes acc; with
    `accumulate` False it begins from nothing and `plus` only holds what it adds up.

    sm_80: a, b shared, fragments loaded by ldmatrix, mma.sync. sm_90: one wgmma chain a warp group, a shared or a
    register tile. sm_100: tcgen05.mma issued by one warp, acc in tensor memory, a shared or in tensor memory; `ctas` =
    2 for a CTA pair, whose accumulator of 64 rows a CTA is folded: [128, n / 2], the right half of its columns below
    the left one (PTX ISA, layout of cta_group::2 with M = 128). A transposed b is read by ldmatrix.trans, or through a
    descriptor (16-bit types only). Mode fiber on sm_80: a in registers, b a pool tensor that all subpartitions read.
    sm_80: a and b both register tiles, b spread as second operand and transposed.
    `start` (there): the part of b, of those in different subpartitions, whose columns come first.
    `accumulate` False: the first k-step overwrites acc; "first_iteration": overwrites when the counter of `loop` is 0.
    """

    acc: str | TmemRef
    a: SharedRef | TmemRef | str
    b: SharedRef | PoolRef | OwnRef
    accumulate: bool | Literal["first_iteration"] = True
    loop: str | None = None
    ctas: int = 1
    b_transposed: bool = False
    a_transposed: bool = False
    plus: str | None = None
    start: int = 0

    @property
    def columns(self) -> int:
        """Columns of the product that this CTA's b gives."""
        return self.b.cols if self.b_transposed else self.b.rows

    def accumulator(self, rows: int) -> tuple[int, int]:
        """Return rows and columns of the accumulator of a CTA that has `rows` rows of the product."""
        cols = self.columns * self.ctas
        return (2 * rows, cols // 2) if is_folded(rows, self.ctas) else (rows, cols)

    @property
    def depth(self) -> int:
        """The extent that is summed over."""
        return self.b.rows if self.b_transposed else self.b.cols


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaCommit(Op):
    """Close a group of matrix instructions; with `barrier`, tcgen05.commit to it."""

    barrier: BarrierUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaWait(Op):
    """wgmma: wait until at most `pending` groups are outstanding."""

    pending: int
