"""The operations of a tile program, each with the line of the kernel that wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heddle.errors import SourceLocation
from heddle.ir.tile_refs import BarrierUse, GlobalRef, OwnRef, PoolRef, Position, SharedRef, TmemRef
from heddle.ir.warp import Count

OWN_ROWS = -1
"""Of a source: each weft reads the rows that it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """Base of all tile operations; `where` is the line of the kernel that wrote it."""

    where: SourceLocation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class For(Op):
    """A loop `count` times; `name` is how references call its counter."""

    name: str
    count: Count
    body: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForEachItem(Op):
    """The loop over this CTA's (or cluster's) work items; a program with schedule `launch` runs it once."""

    body: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class When(Op):
    """Run `body` if the item attribute is not zero."""

    attribute: str
    body: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fibers(Op):
    """Run `body` with the first `count` fibers (lanes) of the role; the others wait, or run the `OtherFibers` after it.

    Fiber f is lane f % 32 of warp f // 32. It holds the rows of a register tile that the tile's layout gives to the
    lane: one of 32, or, of each 8 rows of a fragment, the one that it shares with three neighbours.
    """

    count: Count
    body: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFibers(Op):
    """Run `body` with the fibers that the `Fibers` just before leaves out."""

    body: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaLoad(Op):
    """Bulk copy global -> shared, signalling `barrier`.

    `multicast` CTAs of the cluster each load a part and all receive the whole.
    """

    dst: SharedRef
    src: GlobalRef
    barrier: BarrierUse
    multicast: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaStore(Op):
    """Bulk copy (or reduce-add) shared -> global, one commit group, issued by the first warp of the role."""

    dst: GlobalRef
    src: SharedRef
    reduce: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaStoreWait(Op):
    """Wait until at most `pending` bulk store groups still read shared memory."""

    pending: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CpAsync(Op):
    """Cooperative asynchronous copy global -> shared by all warps of the role (sm_80 cp.async, 16 bytes a lane)."""

    dst: SharedRef
    src: GlobalRef
    bytes_per_lane: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CpAsyncCommit(Op):
    """Close the group of asynchronous copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpAsyncWait(Op):
    """Wait until at most `pending` groups of asynchronous copies are outstanding."""

    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGlobal(Op):
    """Global -> register tile, by plain loads."""

    dst: str
    src: GlobalRef


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGlobal(Op):
    """Register tile -> global, by plain stores or atomic adds; from column `src_col` of the register tile on.

    `transposed`: dst = src.T, of matrix fragments with 32-bit elements, each of which has an address of its own, or of
    rows of lanes (sm_100) as 16-bit elements, a column at a time.
    """

    dst: GlobalRef
    src: str
    reduce: bool = False
    src_col: int = 0
    transposed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreShared(Op):
    """Register tile (converted to the shared tile's dtype) -> shared, by stmatrix (sm_90 on) or stores.

    The part that is stored has the size of `dst` and begins at column `src_col` of the register tile. `by_element`:
    each 16-bit element by a store of its own, with an address of its own. `transposed`: dst = src.T; 16-bit elements
    (stmatrix.trans). `thread_order`: 32-bit elements side by side as the threads hold them, which is what a bulk copy
    into memory of the same order takes; the order itself is not modelled.
    """

    dst: SharedRef
    src: str
    src_col: int = 0
    by_element: bool = False
    transposed: bool = False
    thread_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShared(Op):
    """Shared -> register tile, by plain loads.

    `transposed` (mode fiber on sm_100): dst = src.T, 16-bit elements one by one, so that a lane has a column of src.
    """

    dst: str
    src: SharedRef
    transposed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TransposeShared(Op):
    """dst = src.T, both shared and of one 8-bit type, by all warps of the role (ldmatrix.trans, stmatrix)."""

    dst: SharedRef
    src: SharedRef


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTensorMemory(Op):
    """Tensor memory -> register tile, and wait for it."""

    dst: str
    src: TmemRef


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTensorMemory(Op):
    """Register tile (of the tensor-memory tile's dtype) -> tensor memory, and with `wait`, wait for all stores so far.

    The part that is stored has the size of `dst` and begins at column `src_col` of the register tile.
    """

    dst: TmemRef
    src: str
    src_col: int = 0
    wait: bool = True


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
    four work on different data, as on different keys of the same queries.
    """

    acc: str
    a: str
    b: str
    accumulate: bool = True
    b_transposed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mma(Op):
    """acc += a @ b.T with a [m, k] and b [n, k]; with `b_transposed`, b is [k, n] and acc += a @ b.

    `a_transposed`: a, of 16 bits, is [k, m]. It lies in shared memory (not mode fiber), or in the pool, divided along
    its columns among the wefts that multiply (mode fiber on sm_80).

    `plus` (mode fiber): acc = plus + a @ b.T. The chain accumulates in `plus`, and its last step writes acc; with
    `accumulate` False it begins from nothing and `plus` only holds what it adds up.

    sm_80: a, b shared, fragments loaded by ldmatrix, mma.sync. sm_90: one wgmma chain a warp group, a shared or a
    register tile. sm_100: tcgen05.mma issued by one warp, acc in tensor memory, a shared or in tensor memory; `ctas` =
    2 for a CTA pair. A transposed b is read by ldmatrix.trans, or through a descriptor (16-bit types only). Mode fiber
    on sm_80: a in registers, b a pool tensor that all subpartitions read. sm_80: a and b both register tiles, b spread
    as second operand and transposed.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Op):
    """Wait for the phase of an mbarrier."""

    barrier: BarrierUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrive(Op):
    """Arrive on an mbarrier; `by`: every warp (one lane), one warp a group, or one warp of the role.

    `read` (mode fiber): a register tile; of the role's products only those with this first operand have to be read.
    `after_reads` (sm_90, hypothetical): the matrix unit arrives when the group's products so far have been read.
    """

    barrier: BarrierUse
    by: Literal["warp", "group", "role"] = "warp"
    read: str | None = None
    after_reads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect(Op):
    """Arrive and expect `bytes` from bulk copies."""

    barrier: BarrierUse
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync(Op):
    """Named barrier `id` over the `warps` that execute it (0: all warps of the CTA); `wait` False only arrives."""

    id: int = 0
    warps: int = 0
    wait: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSync(Op):
    """Barrier over `warps` warps of each CTA of the cluster (0: all) that execute it."""

    warps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance(Op):
    """Step the rings of the executing warps."""

    rings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence(Op):
    """Make shared stores visible to the asynchronous proxy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal(Op):
    """Add one to the global semaphore whose index is item attribute `semaphore`, after the CTA's earlier stores."""

    semaphore: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Await(Op):
    """Wait until the global semaphore has reached `value` (an item attribute or a number)."""

    semaphore: str
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFiberNum(Op):
    """From here on `fibers` fibers run, each weft in the role that has its number; the pool becomes empty."""

    fibers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBusyBit(Op):
    """State a datum full (its last writes stand before this line) or empty (its last reads stand before this line).

    The datum is that of a pool tensor, or whole groups of 32 columns of a tile in tensor memory.

    Full: the producer may not write it again before the consumer has given it back. Empty: the consumer gives it back,
    and may not read it again before the producer has written it.
    """

    tile: str | TmemRef
    bit: Literal["full", "empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeToken(Op):
    """Wait for a token and give it back: what its giver has done before is done, as far as bits say so."""

    tile: str
