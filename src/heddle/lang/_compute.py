"""Operations that compute on tiles: elementwise functions, masks, reductions, look-ups, matrix products."""

from __future__ import annotations

from heddle.errors import UserError, unknown_name
from heddle.ir import tile
from heddle.ir.tile_math import OWN_ROWS
from heddle.ir.warp_fiber import SUBPARTITIONS
from heddle.lang._data import DataOps
from heddle.lang._handles import GlobalBox, RegisterHandle, RegisterPart, RegisterQuarter, SharedBox, TensorMemoryBox
from heddle.lang._index import Index, as_index
from heddle.lang._operands import Registers, check_equal, register_operand, whole_tile
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
    "pair_rows": 1,
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


def _source(value: Registers | RegisterQuarter, wefts: int) -> tuple[str, int, int, int]:
    """Return (name, first column, rows, columns) of a source; each of `wefts` wefts takes the same quarter."""
    if isinstance(value, RegisterQuarter):
        tensor = value.handle.tile
        if tensor.spread == "columns":
            return tensor.name, 0, tensor.rows, tensor.cols // SUBPARTITIONS
        return tensor.name, 0, tensor.rows // SUBPARTITIONS * wefts, tensor.cols
    return register_operand(value, "a source")


def _is_row_vector(value: Registers | RegisterQuarter) -> bool:
    """Tell whether a source has one row that every warp has a copy of."""
    tensor = value.tile if isinstance(value, RegisterHandle) else value.handle.tile
    return tensor.spread != "fragments" and tensor.rows == 1


def _quarters(sources: tuple[Registers | RegisterQuarter, ...]) -> tuple[int, ...]:
    """Return the quarter that each source is; nothing if none is."""
    quarters = tuple(s.quarter if isinstance(s, RegisterQuarter) else OWN_ROWS for s in sources)
    return quarters if any(quarter != OWN_ROWS for quarter in quarters) else ()


def _second_operand(b: SharedBox | RegisterHandle) -> tile.SharedRef | tile.PoolRef | tile.OwnRef:
    """Return the reference to b of a product: a box in shared memory, or registers, the role's own or all's."""
    if not isinstance(b, RegisterHandle):
        return b.ref
    if b.tile.spread == "second":
        return tile.OwnRef(tile=b.tile.name, rows=b.tile.rows, cols=b.tile.cols)
    if b.tile.read_by != "all" and b.tile.spread != "operand":
        raise UserError(
            f"b is {b.tile.name!r}; in registers it is a pool tensor that all subpartitions read, or spread as second",
            where=caller(),
            hint='declare it with k.registers(..., spread="second") or k.pool(..., read_by="all")',
        )
    return tile.PoolRef(tile=b.tile.name, rows=b.tile.rows, cols=b.tile.cols)


def _position(value: Index | int) -> tile.Position:
    index = as_index(value)
    return tile.Position(
        attribute=index.attribute,
        loop=index.loop,
        step=index.step,
        constant=index.constant,
        cta_step=index.rank_step,
    )


class ComputeOps(DataOps):
    """The operations of the builder that compute."""

    def elementwise(
        self, function: str, dst: Registers, *sources: Registers | RegisterQuarter, scalars: tuple[float, ...] = ()
    ) -> None:
        """Compute dst = function(sources) element by element; a source of one column is broadcast over the columns.

        A source `t[i].quarter(q)` of a pool tensor: every weft of the role reads the rows that lie in subpartition q.
        """
        (name, dst_col, dst_rows, dst_cols), where = register_operand(dst, "the destination"), caller()
        if function not in ELEMENTWISE:
            raise unknown_name("elementwise function", function, ELEMENTWISE, where)
        if len(sources) + len(scalars) < ELEMENTWISE[function] or not sources:
            given = len(sources) + len(scalars)
            raise UserError(f"{function} takes {ELEMENTWISE[function]} operands, got {given}", where=where)
        wefts = dst.tile.warp_grid[0] if isinstance(dst, RegisterHandle) else 1
        parts = [_source(source, wefts) for source in sources]
        for source, (_, _, rows, cols) in zip(sources, parts, strict=True):
            wanted = (1 if _is_row_vector(source) else dst_rows, 1 if cols == 1 else dst_cols)
            check_equal("a source", (rows, cols), wanted)
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
        warp_cols: int = 0,
    ) -> None:
        """Set elements of a tile whose corner is at (row, col) to `value` where they do not take part.

        An element takes part if its column is below `limit` (0: no limit) and, with `causal`, not above its row
        (divided by `row_divisor`, the rows that share a query) plus `diagonal`. `transposed`: the tile's rows are what
        is called columns here (keys), its columns what is called rows (queries). `warp_cols`: the columns of each
        further warp of the role lie so many further on.
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
                dst=whole_tile(dst, "the masked tile"),
                row=_position(row),
                col=_position(col),
                causal=causal,
                limit=limit,
                diagonal=diagonal,
                row_divisor=row_divisor,
                value=value,
                transposed=transposed,
                warp_cols=warp_cols,
                where=where,
            )
        )

    def gate(self, dst: RegisterHandle, src: Registers) -> None:
        """Compute dst = silu(gate) * factor; of each 16 columns of src (or a part) 8 are gates and 8 their factors.

        dst has half of the columns, both are fp32.
        """
        where = caller()
        source, col, rows, cols = register_operand(src, "the source")
        check_equal("the source", (rows, cols), (dst.tile.rows, 2 * dst.tile.cols))
        self._emit(tile.Gate(dst=whole_tile(dst, "the destination"), src=source, src_col=col, where=where))

    def dequantize(
        self, dst: RegisterHandle, src: RegisterHandle, scale: RegisterHandle, zero: RegisterHandle, *, row: int = 0
    ) -> None:
        """Compute dst = (weight - zero) * scale of 4-bit weights, whose rows lie in `src` from `row` on.

        dst [k, n] is fp16; src [k / 8, 4 n] has eight weights of a column in four bytes, the low half of a byte first;
        `scale` and `zero` [1, n] are fp16. All are spread as second operand. Mode fiber on sm_80: dst [n, k] is a pool
        tensor divided along k among the wefts of the role, as src is (spread as summed); each weft has all values of
        columns. sm_90, sm_100: dst [n, k] is a first operand, a tile or pool tensor of fragments, whose rows lie with
        the warps that have the same columns of src (16 or 32 each).
        """
        dst_name, names = whole_tile(dst, "the destination"), [whole_tile(t, "a source") for t in (src, scale, zero)]
        self._emit(
            tile.Dequantize(dst=dst_name, src=names[0], scale=names[1], zero=names[2], src_row=row, where=caller())
        )

    def look_up(
        self,
        dst: tuple[RegisterHandle, RegisterHandle] | RegisterHandle,
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
        one codebook under the other; `scale` [1, n]. dst is one tile [n, k] where that of
        `dequantize` is.
        """
        whole = (dst,) if isinstance(dst, RegisterHandle) else dst
        parts, names = (
            [whole_tile(t, "a destination") for t in whole],
            [whole_tile(t, "a source") for t in (src, scale)],
        )
        if isinstance(codebook, GlobalBox):
            book: tile.SharedRef | tile.GlobalRef = codebook.reference(*codebook.tensor.shape[-2:])
        else:
            book = codebook.ref
        self._emit(
            tile.LookUp(
                dst=parts[0],
                upper=parts[1] if len(parts) > 1 else None,
                src=names[0],
                scale=names[1],
                codebook=book,
                books=books,
                src_row=row,
                where=caller(),
            )
        )

    def look_up_rows(
        self, dst: RegisterHandle, src: RegisterHandle, codebook: SharedBox | GlobalBox, *, books: int = 1
    ) -> None:
        """Compute dst [n, k] = sum of codebook entries, fp16, by codes src [n, k / 8 or more]; all spread by rows.

        An entry is eight neighbours of a row. A code is a uint16; where there are two `books`, a byte of each, the
        first in the low half. `codebook` is that of `look_up`.
        """
        if isinstance(codebook, GlobalBox):
            book: tile.SharedRef | tile.GlobalRef = codebook.reference(*codebook.tensor.shape[-2:])
        else:
            book = codebook.ref
        names = [whole_tile(each, what) for each, what in ((dst, "the destination"), (src, "the source"))]
        self._emit(tile.LookUpRows(dst=names[0], src=names[1], codebook=book, books=books, where=caller()))

    def dot(self, dst: RegisterHandle, a: Registers, b: RegisterHandle) -> None:
        """Compute dst[row] += sum of a * b over columns of a (or a part), b a row vector, both fp16; spread by rows.

        Eight neighbours are added up in fp16, their sums in fp32. Each lane keeps the sum of its own columns, until
        `row_reduce("sum", dst, dst)`.
        """
        where = caller()
        name, col, rows, cols = register_operand(a, "the first operand")
        check_equal("the second operand", (b.tile.rows, b.tile.cols), (1, cols))
        check_equal("the destination", (dst.tile.rows, dst.tile.cols), (rows, 1))
        names = [whole_tile(each, "an operand") for each in (dst, b)]
        self._emit(tile.Dot(dst=names[0], a=name, b=names[1], a_col=col, where=where))

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
        source, col, rows, cols = register_operand(src, "the source")
        check_equal("the destination", (dst.tile.rows, dst.tile.cols), (rows, 1))
        name = whole_tile(dst, "the destination")
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

        `transposed`: b is [k, n] and the product a @ b (16-bit types). `a_transposed`: a is a shared box [k, m] that
        takes part as a.T (16-bit types), on sm_80 in mode fiber a pool tensor divided along its columns. `ctas` = 2
        (sm_100): a pair of CTAs, each with its own rows of a and acc, and half of the columns of the product in its b.
        Of 64 rows a CTA the accumulator is folded, [128, n / 2]: the right half of its columns lies below the left one.
        `plus` (mode fiber): acc = plus + a @ b.T, where the
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
        cols = columns * ctas
        folded = tile.is_folded(rows, ctas)
        wanted = (2 * rows, cols // 2) if folded else (rows, cols)
        check_equal("the second operand", (cols, summed), (accumulator.cols * (2 if folded else 1), depth))
        check_equal("the accumulator", (accumulator.rows, accumulator.cols), wanted)
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

    def mma_apart(
        self,
        acc: RegisterHandle,
        a: RegisterHandle,
        b: RegisterHandle,
        *,
        accumulate: bool = True,
        transposed: bool = False,
        a_transposed: bool = False,
    ) -> None:
        """Multiply in each of four wefts what the weft has itself (mode fiber, sm_80): acc += a @ b.T.

        A weft has 16 rows of `acc`, and its quarter of the rows of `b` [n, k]; `transposed`: b is [k, n]. `a` has 16
        rows a weft, or is spread as first operand: 16 rows of which each weft has a copy; `a_transposed`: a is [k, m],
        a pool tensor divided along its columns.
        """
        self._emit(
            tile.MmaApart(
                acc=whole_tile(acc, "the accumulator"),
                a=whole_tile(a, "a"),
                b=whole_tile(b, "b"),
                accumulate=accumulate,
                b_transposed=transposed,
                a_transposed=a_transposed,
                where=caller(),
            )
        )

    def mma_commit(self, barrier: tile.BarrierUse | None = None) -> None:
        """Close the group of matrix products; with a barrier (sm_100), arrive there when they are complete."""
        self._emit(tile.MmaCommit(barrier=barrier, where=caller()))

    def mma_wait(self, *, pending: int) -> None:
        """Wait until at most `pending` groups of matrix products are unfinished (sm_90)."""
        self._emit(tile.MmaWait(pending=pending, where=caller()))
