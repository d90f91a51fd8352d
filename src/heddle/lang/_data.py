"""Operations that move and compute tiles: copies, matrix products, elementwise functions, reductions."""

from __future__ import annotations

from heddle.errors import UserError, unknown_name
from heddle.ir import tile
from heddle.ir.tile_ops import OWN_ROWS
from heddle.ir.warp_fiber import SUBPARTITIONS
from heddle.lang._handles import GlobalBox, RegisterHandle, RegisterPart, RegisterQuarter, SharedBox, TensorMemoryBox
from heddle.lang._index import Index, as_index
from heddle.lang._sync import SyncOps
from heddle.lang._where import caller

ELEMENTWISE: dict[str, int] = {
    "add": 2,
    "sub": 2,
    "mul": 2,
    "max": 2,
    "div": 2,
    "fma": 3,
    "exp2": 1,
    "silu": 1,
    "cast": 1,
    "cast_regrouped": 1,
    "copy": 1,
    "scale": 2,
    "scaled_sub": 3,
    "exp2_scaled_sub": 3,
    "exp2_poly_scaled_sub": 3,
    "exp2_mixed": 3,
    "choose": 2,
    "check": 1,
    "log2": 1,
    "reciprocal": 1,
    "rsqrt": 1,
    "neg": 1,
    "relu": 1,
    "rotate": 2,
}
"""Elementwise functions and how many operands each takes, tiles and then scalars.

`cast_regrouped` is a cast to an 8-bit type behind which two byte permutes regroup two registers, as the fragment of a
product may want it. `scale` multiplies by its scalar; `scaled_sub` is x * scalar - y, `exp2_scaled_sub` 2 to the power
of that, and `exp2_poly_scaled_sub` the same by a polynomial on the FMA pipe. `exp2_mixed` is 2 to the power of x: of
each `scalar0` columns the last `scalar1` by the polynomial. `choose` and `check` give x, as what depends on numbers is
a policy of the kernel; they cost a comparison, and a selection between x and y or a vote of the warp. `rotate` takes
columns 2i and 2i + 1 of x as a complex number, times that of y, whose elements may be narrower.
"""

Registers = RegisterHandle | RegisterPart


def _register(value: Registers, what: str) -> tuple[str, int, int, int]:
    """Return (name, first column, rows, columns) of a register operand."""
    if isinstance(value, RegisterHandle):
        return value.tile.name, 0, value.tile.rows, value.tile.cols
    if isinstance(value, RegisterPart):
        return value.handle.tile.name, value.col, value.handle.tile.rows, value.cols
    raise UserError(f"{what} must be a register tile, got {type(value).__name__}", where=caller())


def _source(value: Registers | RegisterQuarter, wefts: int) -> tuple[str, int, int, int]:
    """Return (name, first column, rows, columns) of a source; each of `wefts` wefts takes the same quarter."""
    if isinstance(value, RegisterQuarter):
        tensor = value.handle.tile
        return tensor.name, 0, tensor.rows // SUBPARTITIONS * wefts, tensor.cols
    return _register(value, "a source")


def _is_row_vector(value: Registers | RegisterQuarter) -> bool:
    """Tell whether a source has one row that every warp has a copy of."""
    tensor = value.tile if isinstance(value, RegisterHandle) else value.handle.tile
    return tensor.spread != "fragments" and tensor.rows == 1


def _quarters(sources: tuple[Registers | RegisterQuarter, ...]) -> tuple[int, ...]:
    """Return the quarter that each source is; nothing if none is."""
    quarters = tuple(s.quarter if isinstance(s, RegisterQuarter) else OWN_ROWS for s in sources)
    return quarters if any(quarter != OWN_ROWS for quarter in quarters) else ()


def _equal(what: str, got: tuple[int, int], wanted: tuple[int, int]) -> None:
    if got != wanted:
        raise UserError(f"{what} is {got[0]} x {got[1]}, expected {wanted[0]} x {wanted[1]}", where=caller())


def _whole(value: Registers, what: str) -> str:
    """Return the name of a whole register tile; parts may only be sources."""
    if isinstance(value, RegisterPart):
        raise UserError(f"{what} must be a whole register tile; a part of columns can only be a source", where=caller())
    return _register(value, what)[0]


def _second_operand(b: SharedBox | RegisterHandle) -> tile.SharedRef | tile.PoolRef | tile.OwnRef:
    """Return the reference to b of a product: a box in shared memory, or registers, the role's own or all's."""
    if not isinstance(b, RegisterHandle):
        return b.ref
    if b.tile.spread == "second":
        return tile.OwnRef(tile=b.tile.name, rows=b.tile.rows, cols=b.tile.cols)
    if b.tile.read_by != "all":
        raise UserError(
            f"b is {b.tile.name!r}; in registers it is a pool tensor that all subpartitions read, or spread as second",
            where=caller(),
            hint='declare it with k.registers(..., spread="second") or k.pool(..., read_by="all")',
        )
    return tile.PoolRef(tile=b.tile.name, rows=b.tile.rows, cols=b.tile.cols)


def _position(value: Index | int) -> tile.Position:
    index = as_index(value)
    if index.rank_step:
        raise UserError("the position of a mask may not depend on the CTA's rank", where=caller())
    return tile.Position(attribute=index.attribute, loop=index.loop, step=index.step, constant=index.constant)


class DataOps(SyncOps):
    """The copying and computing operations of the builder."""

    def tma_load(self, dst: SharedBox, src: GlobalBox, barrier: tile.BarrierUse, *, multicast: int = 1) -> None:
        """Start a bulk copy global -> shared that signals `barrier`; `multicast` CTAs each load a part for all."""
        ref = src.reference(*self._box(dst, src))
        self._emit(tile.TmaLoad(dst=dst.ref, src=ref, barrier=barrier, multicast=multicast, where=caller()))

    def tma_store(self, dst: GlobalBox, src: SharedBox, *, reduce: bool = False) -> None:
        """Start a bulk copy shared -> global (or a reduction into it) as one group."""
        ref = dst.reference(*self._box(src, dst))
        self._emit(tile.TmaStore(dst=ref, src=src.ref, reduce=reduce, where=caller()))

    def tma_store_wait(self, *, pending: int = 0) -> None:
        """Wait until at most `pending` groups of bulk stores still read shared memory."""
        self._emit(tile.TmaStoreWait(pending=pending, where=caller()))

    def cp_async(self, dst: SharedBox, src: GlobalBox, *, bytes_per_lane: int = 16) -> None:
        """Start a copy global -> shared by all warps of the role (cp.async)."""
        if bytes_per_lane not in (4, 8, 16):
            raise UserError(f"cp.async copies 4, 8 or 16 bytes a lane, got {bytes_per_lane}", where=caller())
        ref = src.reference(*self._box(dst, src))
        self._emit(tile.CpAsync(dst=dst.ref, src=ref, bytes_per_lane=bytes_per_lane, where=caller()))

    def cp_async_commit(self) -> None:
        """Close the group of the copies started since the last one."""
        self._emit(tile.CpAsyncCommit(where=caller()))

    def cp_async_wait(self, *, pending: int) -> None:
        """Wait until at most `pending` groups of asynchronous copies are on their way."""
        self._emit(tile.CpAsyncWait(pending=pending, where=caller()))

    def load(self, dst: RegisterHandle, src: GlobalBox | SharedBox | TensorMemoryBox) -> None:
        """Load a register tile from global, shared or tensor memory."""
        name, (rows, cols), where = _whole(dst, "the destination"), (dst.tile.rows, dst.tile.cols), caller()
        if isinstance(src, GlobalBox):
            _equal("the source", src.size or (rows, cols), (rows, cols))
            self._emit(tile.LoadGlobal(dst=name, src=src.reference(rows, cols), where=where))
        elif isinstance(src, SharedBox):
            _equal("the source", (src.ref.rows, src.ref.cols), (rows, cols))
            self._emit(tile.LoadShared(dst=name, src=src.ref, where=where))
        elif isinstance(src, TensorMemoryBox):
            _equal("the source", (src.ref.rows, src.ref.cols), (rows, cols))
            self._emit(tile.LoadTensorMemory(dst=name, src=src.ref, where=where))
        else:
            raise UserError(f"cannot load from {type(src).__name__}", where=where)

    def store(
        self,
        dst: GlobalBox | SharedBox | TensorMemoryBox,
        src: Registers,
        *,
        reduce: bool = False,
        wait: bool = True,
        by_element: bool = False,
        transposed: bool = False,
        thread_order: bool = False,
    ) -> None:
        """Store a register tile, or columns of it, converted to the destination's type; `reduce`: add.

        To tensor memory, `wait=False` leaves the wait to a later such store, which waits for all. To shared memory,
        `by_element` stores 16-bit elements one by one, as code does whose layout has no wider stores; `transposed`
        stores the transposed tile (sm_90 on); `thread_order` stores 32-bit elements in whatever order the threads have
        them, without bank conflicts, for a bulk copy to memory that is kept in the same order.
        """
        (name, col, rows, cols), where = _register(src, "the source"), caller()
        size = (cols, rows) if transposed else (rows, cols)
        if (transposed or thread_order) and not isinstance(dst, SharedBox):
            raise UserError("transposed and thread_order are for stores to shared memory", where=where)
        if isinstance(dst, GlobalBox):
            _equal("the destination", dst.size or (rows, cols), (rows, cols))
            ref = dst.reference(rows, cols)
            self._emit(tile.StoreGlobal(dst=ref, src=name, reduce=reduce, src_col=col, where=where))
        elif isinstance(dst, SharedBox) and not reduce:
            _equal("the destination", (dst.ref.rows, dst.ref.cols), size)
            self._emit(
                tile.StoreShared(
                    dst=dst.ref,
                    src=name,
                    src_col=col,
                    by_element=by_element,
                    transposed=transposed,
                    thread_order=thread_order,
                    where=where,
                )
            )
        elif isinstance(dst, TensorMemoryBox) and not reduce:
            _equal("the destination", (dst.ref.rows, dst.ref.cols), (rows, cols))
            self._emit(tile.StoreTensorMemory(dst=dst.ref, src=name, src_col=col, wait=wait, where=where))
        else:
            raise UserError(f"cannot {'reduce' if reduce else 'store'} to {type(dst).__name__}", where=where)

    def transpose(self, dst: SharedBox, src: SharedBox) -> None:
        """Write a box of 8-bit elements in shared memory transposed into another, by all warps of the role."""
        where = caller()
        if not isinstance(dst, SharedBox) or not isinstance(src, SharedBox):
            raise UserError("a transpose goes from shared memory to shared memory", where=where)
        _equal("the destination", (dst.ref.rows, dst.ref.cols), (src.ref.cols, src.ref.rows))
        self._emit(tile.TransposeShared(dst=dst.ref, src=src.ref, where=where))

    def fill(self, dst: RegisterHandle, value: float = 0.0) -> None:
        """Set all elements of a register tile."""
        self._emit(tile.Fill(dst=_whole(dst, "the destination"), value=value, where=caller()))

    def elementwise(
        self, function: str, dst: Registers, *sources: Registers | RegisterQuarter, scalars: tuple[float, ...] = ()
    ) -> None:
        """Compute dst = function(sources) element by element; a source of one column is broadcast over the columns.

        A source `t[i].quarter(q)` of a pool tensor: every weft of the role reads the rows that lie in subpartition q.
        """
        (name, dst_col, dst_rows, dst_cols), where = _register(dst, "the destination"), caller()
        if function not in ELEMENTWISE:
            raise unknown_name("elementwise function", function, ELEMENTWISE, where)
        if len(sources) + len(scalars) < ELEMENTWISE[function] or not sources:
            given = len(sources) + len(scalars)
            raise UserError(f"{function} takes {ELEMENTWISE[function]} operands, got {given}", where=where)
        wefts = dst.tile.warp_grid[0] if isinstance(dst, RegisterHandle) else 1
        parts = [_source(source, wefts) for source in sources]
        for source, (_, _, rows, cols) in zip(sources, parts, strict=True):
            wanted = (1 if _is_row_vector(source) else dst_rows, 1 if cols == 1 else dst_cols)
            _equal("a source", (rows, cols), wanted)
        offsets = tuple(col for _, col, _, _ in parts)
        self._emit(
            tile.Elementwise(
                function=function,
                dst=name,
                sources=tuple(part[0] for part in parts),
                scalars=scalars,
                source_cols=offsets if any(offsets) else (),
                source_quarters=_quarters(sources),
                dst_col=dst_col,
                dst_cols=dst_cols if isinstance(dst, RegisterPart) else 0,
                where=where,
            )
        )

    def mask(
        self,
        dst: RegisterHandle,
        *,
        row: Index | int = 0,
        col: Index | int = 0,
        causal: bool = False,
        limit: int = 0,
        diagonal: int = 0,
        row_divisor: int = 1,
        value: float = float("-inf"),
        transposed: bool = False,
    ) -> None:
        """Set elements of a tile whose corner is at (row, col) to `value` where they do not take part.

        An element takes part if its column is below `limit` (0: no limit) and, with `causal`, not above its row
        (divided by `row_divisor`, the rows that share a query) plus `diagonal`. `transposed`: the tile's rows are what
        is called columns here (keys), its columns what is called rows (queries).
        """
        where = caller()
        if not causal and not limit:
            raise UserError("a mask needs causal=True or a limit", where=where)
        if row_divisor < 1 or limit < 0:
            raise UserError(
                f"row_divisor must be at least 1 and limit at least 0, got {row_divisor}, {limit}", where=where
            )
        self._emit(
            tile.Mask(
                dst=_whole(dst, "the masked tile"),
                row=_position(row),
                col=_position(col),
                causal=causal,
                limit=limit,
                diagonal=diagonal,
                row_divisor=row_divisor,
                value=value,
                transposed=transposed,
                where=where,
            )
        )

    def gate(self, dst: RegisterHandle, src: Registers) -> None:
        """Compute dst = silu(gate) * factor; of each 16 columns of src (or a part) 8 are gates and 8 their factors.

        dst has half of the columns, both are fp32.
        """
        where = caller()
        source, col, rows, cols = _register(src, "the source")
        _equal("the source", (rows, cols), (dst.tile.rows, 2 * dst.tile.cols))
        self._emit(tile.Gate(dst=_whole(dst, "the destination"), src=source, src_col=col, where=where))

    def dequantize(
        self, dst: RegisterHandle, src: RegisterHandle, scale: RegisterHandle, zero: RegisterHandle, *, row: int = 0
    ) -> None:
        """Compute dst = (weight - zero) * scale of 4-bit weights, whose rows lie in `src` from `row` on.

        dst [k, n] is fp16; src [k / 8, 4 n] has eight weights of a column in four bytes, the low half of a byte first;
        `scale` and `zero` [1, n] are fp16. All are spread as second operand. Mode fiber: dst [n, k] is a pool tensor
        divided along k among the wefts of the role, as src is (spread as summed); each weft has all values of columns.
        """
        dst_name, names = _whole(dst, "the destination"), [_whole(t, "a source") for t in (src, scale, zero)]
        self._emit(
            tile.Dequantize(dst=dst_name, src=names[0], scale=names[1], zero=names[2], src_row=row, where=caller())
        )

    def look_up(
        self,
        dst: tuple[RegisterHandle, RegisterHandle],
        src: RegisterHandle,
        scale: RegisterHandle,
        codebook: SharedBox | GlobalBox,
        *,
        books: int = 1,
        row: int = 0,
    ) -> None:
        """Compute dst = sum of codebook entries * scale, by codes whose rows lie in `src` from `row` on.

        dst are the first and the second 16 of 32 rows of k, [16, n], fp16; src [k / 8, books n] has the codes of a
        column side by side; `codebook` [entries, 8] is a box in global memory, or copies side by side in shared memory,
        one codebook under the other; `scale` [1, n].
        """
        parts, names = [_whole(t, "a destination") for t in dst], [_whole(t, "a source") for t in (src, scale)]
        if isinstance(codebook, GlobalBox):
            book: tile.SharedRef | tile.GlobalRef = codebook.reference(*codebook.tensor.shape[-2:])
        else:
            book = codebook.ref
        self._emit(
            tile.LookUp(
                dst=parts[0],
                upper=parts[1],
                src=names[0],
                scale=names[1],
                codebook=book,
                books=books,
                src_row=row,
                where=caller(),
            )
        )

    def row_reduce(
        self,
        function: str,
        dst: RegisterHandle,
        src: Registers,
        *,
        accumulate: bool = False,
        across_lanes: bool = True,
    ) -> None:
        """Compute dst[row] = max or sum over the columns of src (or a part), and over dst's old value if `accumulate`.

        `across_lanes=False`: each lane keeps the result of its own columns, until `row_reduce(function, dst, dst)`.
        """
        where = caller()
        if function not in ("max", "sum"):
            raise unknown_name("row reduction", function, ("max", "sum"), where)
        source, col, rows, cols = _register(src, "the source")
        _equal("the destination", (dst.tile.rows, dst.tile.cols), (rows, 1))
        name = _whole(dst, "the destination")
        self._emit(
            tile.RowReduce(
                function=function,
                dst=name,
                src=source,
                accumulate=accumulate,
                across_lanes=across_lanes,
                src_col=col,
                src_cols=cols if isinstance(src, RegisterPart) else 0,
                where=where,
            )
        )

    def mma(
        self,
        acc: RegisterHandle | TensorMemoryBox,
        a: SharedBox | TensorMemoryBox | RegisterHandle,
        b: SharedBox | RegisterHandle,
        *,
        first: Index | None = None,
        accumulate: bool = True,
        ctas: int = 1,
        transposed: bool = False,
        a_transposed: bool = False,
        plus: RegisterHandle | None = None,
        start: int = 0,
    ) -> None:
        """Start acc += a @ b.T with a [m, k], b [n, k]; with `first=i` the iteration i = 0 overwrites acc.

        `transposed`: b is [k, n] and the product a @ b (16-bit types). `a_transposed` (sm_80, sm_90): a is a shared box
        [k, m] that takes part as a.T (16-bit types). `ctas` = 2 (sm_100): a pair of CTAs, each with its own rows of a
        and acc, and half of the columns of the product in its b. `plus` (mode fiber): acc = plus + a @ b.T, where the
        sum grows in `plus` and only the last step writes acc: no partial sum is seen there; with `accumulate=False` acc
        = a @ b.T, and `plus` is where it grows. `start`: of a b that lies in several subpartitions, the part whose
        columns come first; wefts that start with different parts ask for different ports.
        """
        where = caller()
        rows, depth = (a.tile.rows, a.tile.cols) if isinstance(a, RegisterHandle) else (a.ref.rows, a.ref.cols)
        rows, depth = (depth, rows) if a_transposed else (rows, depth)
        accumulator = acc.tile if isinstance(acc, RegisterHandle) else acc.ref
        second = _second_operand(b)
        columns, summed = (second.cols, second.rows) if transposed else (second.rows, second.cols)
        _equal("the second operand", (columns * ctas, summed), (accumulator.cols, depth))
        _equal("the accumulator", (accumulator.rows, accumulator.cols), (rows, columns * ctas))
        if first is not None and (not isinstance(first, Index) or first.loop is None):
            raise UserError("`first` is the counter of a loop", where=where)
        self._emit(
            tile.Mma(
                acc=acc.tile.name if isinstance(acc, RegisterHandle) else acc.ref,
                a=a.tile.name if isinstance(a, RegisterHandle) else a.ref,
                b=second,
                accumulate="first_iteration" if first is not None else accumulate,
                loop=first.loop if first is not None else None,
                ctas=ctas,
                b_transposed=transposed,
                a_transposed=a_transposed,
                plus=plus.tile.name if plus is not None else None,
                start=start,
                where=where,
            )
        )

    def mma_commit(self, barrier: tile.BarrierUse | None = None) -> None:
        """Close the group of matrix products; with a barrier (sm_100), arrive there when they are complete."""
        self._emit(tile.MmaCommit(barrier=barrier, where=caller()))

    def mma_wait(self, *, pending: int) -> None:
        """Wait until at most `pending` groups of matrix products are unfinished (sm_90)."""
        self._emit(tile.MmaWait(pending=pending, where=caller()))

    @staticmethod
    def _box(shared: SharedBox, box: GlobalBox) -> tuple[int, int]:
        if not isinstance(shared, SharedBox) or not isinstance(box, GlobalBox):
            raise UserError("a copy goes between shared[ring] and tensor[row, col]", where=caller())
        size = (shared.ref.rows, shared.ref.cols)
        _equal("the global box", box.size or size, size)
        return size
