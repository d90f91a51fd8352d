"""Shape rules: parts lie inside their tiles, both ends of a copy and the operands of a product agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from heddle.errors import SourceLocation, UserError
from heddle.ir import tile
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile_verify_rows import verify_copy_through, verify_dot, verify_look_up_rows
from heddle.ir.tile_walk import references, register_writes, walk
from heddle.ir.warp_fiber import SUBPARTITIONS

MAX_BOX_ROWS = 256
"""A bulk copy moves boxes of at most 256 rows (CUDA driver API, cuTensorMapEncodeTiled)."""

TRANSPOSABLE_BYTES = 2
"""Only 16-bit operands may be stored with the summed extent outermost (PTX ISA, wgmma and tcgen05 major-ness)."""

COLUMN_BYTES = 4
"""Of a column of tensor memory."""

APART_ROWS = 16
"""Of a weft that multiplies what it holds itself: the m of mma.sync."""

Shape = tuple[int, int]


def verify_shapes(program: tile.TileProgram) -> None:
    """Raise UserError where shapes do not fit."""
    tiles = _Tiles(program)
    _overlays(program)
    for op, _ in walk(program):
        for ref in (*references(op, tile.SharedRef), *references(op, tile.TmemRef)):
            _inside(ref, tiles.shape(ref.tile), op.where)
            if isinstance(ref, tile.SharedRef) and ref.cta_row:
                below = ref.cta_row * (program.cluster_size - 1)
                _inside(replace(ref, row=ref.row + below), tiles.shape(ref.tile), op.where)
        for held in (*references(op, tile.PoolRef), *references(op, tile.OwnRef)):
            _equal("the second operand's tile", (held.rows, held.cols), tiles.shape(held.tile), op.where)
        for kinds, check in _CHECKS:
            if isinstance(op, kinds):
                check(op, tiles)


def _load(op: tile.LoadGlobal | tile.LoadShared | tile.LoadTensorMemory, tiles: _Tiles) -> None:
    size = (op.src.rows, op.src.cols)
    if isinstance(op, tile.LoadShared) and op.each:
        size = (SUBPARTITIONS * size[0], size[1])
    if isinstance(op, tile.LoadShared) and op.transposed:
        size = size[::-1]
        if dtype_bytes(tiles.dtype(op.dst)) != TRANSPOSABLE_BYTES:
            raise UserError(
                f"a transposed load is of 16-bit elements; {op.dst!r} is {tiles.dtype(op.dst)}", where=op.where
            )
    _equal("the source", size, tiles.shape(op.dst), op.where)


def _row_reduce(op: tile.RowReduce, tiles: _Tiles) -> None:
    rows, cols = tiles.shape(op.src)
    _equal("the destination", tiles.shape(op.dst), (rows, 1), op.where)
    if min(op.src_col, op.src_cols) < 0 or op.src_col + max(op.src_cols, 1) > cols:
        raise UserError(
            f"{op.src_cols} columns from column {op.src_col} on do not lie inside {op.src!r} of {cols}", where=op.where
        )


def _gate(op: tile.Gate, tiles: _Tiles) -> None:
    rows, cols = tiles.shape(op.dst)
    source_rows, source_cols = tiles.shape(op.src)
    if cols % tile.GATE_COLUMNS or source_rows != rows or op.src_col % (2 * tile.GATE_COLUMNS):
        raise UserError(
            f"{op.dst!r} of {rows} x {cols} does not take gates of {op.src!r} ({source_rows} x {source_cols}) from "
            f"column {op.src_col} on",
            where=op.where,
            hint=f"as many rows, and columns in multiples of {tile.GATE_COLUMNS}",
        )
    if not 0 <= op.src_col <= source_cols - 2 * cols:
        raise UserError(
            f"{op.dst!r} of {cols} columns needs {2 * cols} of {op.src!r}, which has {source_cols - op.src_col} from "
            f"column {op.src_col} on",
            where=op.where,
        )
    if tiles.dtype(op.dst) != "fp32" or tiles.dtype(op.src) != "fp32":
        raise UserError(f"gates are computed in fp32; {op.dst!r} or {op.src!r} is not", where=op.where)


def _dequantize(op: tile.Dequantize, tiles: _Tiles) -> None:
    rows, cols = tiles.shape(op.dst)
    if tiles.by_name[op.dst].spread in ("fragments", "operand"):  # weights as rows, or in the pool
        rows, cols = cols, rows
    packed_rows, packed_cols = tiles.shape(op.src)
    words = rows // tile.CODE_WEIGHTS
    if (
        rows % tile.CODE_WEIGHTS
        or not 0 <= op.src_row <= packed_rows - words
        or packed_cols != tile.CODE_COLUMNS * cols
    ):
        raise UserError(
            f"{op.dst!r} of {rows} x {cols} is not made of rows {op.src_row} to {op.src_row + words} of {op.src!r} "
            f"({packed_rows} x {packed_cols})",
            where=op.where,
            hint=f"eight weights of a column lie in {tile.CODE_COLUMNS} bytes of a row",
        )
    for name in (op.scale, op.zero):
        _equal(f"{name!r}", tiles.shape(name), (1, cols), op.where)
    types = tuple(tiles.dtype(name) for name in (op.dst, op.src, op.scale, op.zero))
    if types != ("fp16", "uint8", "fp16", "fp16"):
        raise UserError(
            f"weights of {types[1]} with scales of {types[2]} and zero points of {types[3]} make {types[0]}; fp16 is "
            "made of uint8 with fp16",
            where=op.where,
        )


def _look_up(op: tile.LookUp, tiles: _Tiles) -> None:
    rows, cols = tiles.shape(op.dst)
    if op.upper is not None:
        _equal(f"{op.upper!r}", tiles.shape(op.upper), (rows, cols), op.where)
        rows *= 2
    else:
        rows, cols = cols, rows
    code_rows, code_cols = tiles.shape(op.src)
    entries = rows // tile.CODE_WEIGHTS
    if rows % tile.CODE_WEIGHTS or not 0 <= op.src_row <= code_rows - entries or code_cols != op.books * cols:
        raise UserError(
            f"{op.dst!r} of {rows} x {cols} is not looked up by rows {op.src_row} to {op.src_row + entries} of "
            f"{op.src!r} ({code_rows} x {code_cols})",
            where=op.where,
            hint=f"an entry is {tile.CODE_WEIGHTS} weights of a column, of each of {op.books} codebooks",
        )
    _equal(f"{op.scale!r}", tiles.shape(op.scale), (1, cols), op.where)
    kind = tiles.dtype(op.src)
    most = op.books * (1 << 8 * dtype_bytes(kind))
    if not kind.startswith("uint") or op.codebook.rows > most or op.codebook.cols % tile.CODE_WEIGHTS:
        raise UserError(
            f"codes of {kind} choose among {most} entries of {tile.CODE_WEIGHTS} weights; the codebook is "
            f"{op.codebook.rows} x {op.codebook.cols}",
            where=op.where,
        )


def _overlays(program: tile.TileProgram) -> None:
    """A tile that overlays another has its stages and rows, and lies inside its columns."""
    for shared in program.shared:
        _shared_overlay(shared, program)
    for registers in program.registers:
        _register_overlay(registers, program)
    by_name = {memory.name: memory for memory in program.tensor_memory}
    for memory in program.tensor_memory:
        if memory.overlays is None:
            continue
        if memory.overlays not in by_name or by_name[memory.overlays].overlays is not None:
            raise UserError(f"{memory.name!r} overlays {memory.overlays!r}, which is no tile with columns of its own")
        under = by_name[memory.overlays]
        first = memory.overlay_col * COLUMN_BYTES
        end, size = first + memory.cols * dtype_bytes(memory.dtype), under.cols * dtype_bytes(under.dtype)
        if (memory.rows, memory.stages) != (under.rows, under.stages) or first < 0 or end > size:
            raise UserError(
                f"{memory.name!r} ({memory.stages} x {memory.rows} rows, bytes {first} to {end} of a row) does not lie "
                f"inside {under.name!r} ({under.stages} x {under.rows} rows of {size} bytes)"
            )


def _shared_overlay(shared: tile.SharedTile, program: tile.TileProgram) -> None:
    """A tile that overlays another has its rows, and no more stages and bytes of a row."""
    if shared.overlays is None:
        return
    under = next((t for t in program.shared if t.name == shared.overlays and t.overlays is None), None)
    if under is None:
        raise UserError(f"{shared.name!r} overlays {shared.overlays!r}, which is no shared tile with memory of its own")
    size, room = (t.cols * dtype_bytes(t.dtype) for t in (shared, under))
    if shared.rows != under.rows or shared.stages > under.stages or size > room:
        raise UserError(
            f"{shared.name!r} ({shared.stages} x {shared.rows} rows of {size} bytes) does not lie inside "
            f"{under.name!r} ({under.stages} x {under.rows} rows of {room} bytes)"
        )


def _register_overlay(over: tile.RegisterTile, program: tile.TileProgram) -> None:
    """A tile that overlays another has its shape, and is made from it, column by column, by casts alone."""
    if over.overlays is None:
        return
    under = next((t for t in program.registers if t.name == over.overlays and t.overlays is None), None)
    alike = under and (over.rows, over.cols, over.warp_grid) == (under.rows, under.cols, under.warp_grid)
    if under is None or not alike or under.dtype != "fp32":
        raise UserError(f"{over.name!r} overlays {over.overlays!r}, which is no fp32 register tile of its shape")
    for op, _ in walk(program):
        if over.name in register_writes(op) and not _regroups(op, under.name, over):
            raise UserError(
                f"{over.name!r} lies in {under.name!r}: only cast_regrouped fills it, or a cast to 16 bits",
                where=op.where,
            )


def _regroups(op: tile.Op, source: str, over: tile.RegisterTile) -> bool:
    """Whether an operation casts columns of `source` into the same columns of the tile over it."""
    function = "cast" if dtype_bytes(over.dtype) == TRANSPOSABLE_BYTES else "cast_regrouped"
    if not isinstance(op, tile.Elementwise) or op.function != function:
        return False
    return op.sources == (source,) and (op.source_cols or (0,)) == (op.dst_col,)


class _Tiles:
    """Shapes and element types of all tiles by name."""

    def __init__(self, program: tile.TileProgram) -> None:
        registers = (*program.registers, *program.pool)
        groups: tuple[tuple[Any, ...], ...] = (program.shared, registers, program.tensor_memory)
        self.pool = program.pool
        self.by_name = {declared.name: declared for group in groups for declared in group}

    def shape(self, name: str) -> Shape:
        declared = self.by_name[name]
        return declared.rows, declared.cols

    def dtype(self, name: str) -> str:
        return str(self.by_name[name].dtype)


def _inside(ref: tile.SharedRef | tile.TmemRef, shape: Shape, where: SourceLocation | None) -> None:
    rows, cols = shape
    if ref.row < 0 or ref.col < 0 or ref.row + ref.rows > rows or ref.col + ref.cols > cols:
        raise UserError(
            f"{ref.rows} x {ref.cols} at ({ref.row}, {ref.col}) does not lie inside {ref.tile!r} of {rows} x {cols}",
            where=where,
        )


def _equal(what: str, got: Shape, wanted: Shape, where: SourceLocation | None) -> None:
    if got != wanted:
        raise UserError(f"{what} is {got[0]} x {got[1]}, expected {wanted[0]} x {wanted[1]}", where=where)


def _copy(op: tile.TmaLoad | tile.TmaStore | tile.CpAsync, tiles: _Tiles) -> None:
    dst, src = (op.dst.rows, op.dst.cols), (op.src.rows, op.src.cols)
    _equal("the destination", dst, src, op.where)
    if isinstance(op, tile.CpAsync):
        return
    shared = op.dst if isinstance(op, tile.TmaLoad) else op.src
    assert isinstance(shared, tile.SharedRef)
    declared = tiles.by_name[shared.tile]
    row_bytes = shared.cols * dtype_bytes(declared.dtype)
    if shared.rows > MAX_BOX_ROWS or (declared.swizzle_bytes and row_bytes > declared.swizzle_bytes):
        raise UserError(
            f"a bulk copy moves up to {MAX_BOX_ROWS} rows of up to {declared.swizzle_bytes or 'any'} bytes "
            f"(the swizzle), this one {shared.rows} rows of {row_bytes} bytes",
            where=op.where,
            hint="cut the tile into several copies",
        )


def _copy_to_peer(op: tile.CopyToPeer, tiles: _Tiles) -> None:
    """What is copied is one piece of memory here and there: whole rows of tiles that are stored alike."""
    _equal("the destination", (op.dst.rows, op.dst.cols), (op.src.rows, op.src.cols), op.where)
    dst, src = tiles.by_name[op.dst.tile], tiles.by_name[op.src.tile]
    if (dst.dtype, dst.swizzle_bytes, dst.cols) != (src.dtype, src.swizzle_bytes, src.cols) or op.src.cols != src.cols:
        raise UserError(
            f"a copy to the peer moves whole rows between tiles that lie alike; {op.src.cols} of {src.cols} columns of "
            f"{src.name!r} ({src.dtype}) go to {dst.name!r} of {dst.cols} ({dst.dtype})",
            where=op.where,
        )
    if src.swizzle_bytes and src.cols * dtype_bytes(src.dtype) > src.swizzle_bytes:
        raise UserError(
            f"{src.name!r} lies in strips of {src.swizzle_bytes} bytes, which are no one piece of memory",
            where=op.where,
            hint=f"declare a tile of at most {src.swizzle_bytes} bytes a row",
        )


def _add_folded(op: tile.TmaAddFolded, tiles: _Tiles) -> None:
    rows, cols = op.src.rows, op.src.cols
    if rows != 2 * op.dst.rows or op.dst.cols % (2 * cols) or not 0 <= op.part < op.dst.cols // (2 * cols):
        raise UserError(
            f"part {op.part} of {rows} x {cols} of a folded accumulator does not lie in one of "
            f"{op.dst.rows} x {op.dst.cols}",
            where=op.where,
        )
    if tiles.dtype(op.src.tile) != "fp32":
        raise UserError(f"accumulators are fp32, {op.src.tile!r} is {tiles.dtype(op.src.tile)}", where=op.where)


def _store(op: tile.StoreGlobal | tile.StoreShared | tile.StoreTensorMemory, tiles: _Tiles) -> None:
    rows, cols = tiles.shape(op.src)
    stored_rows, stored_cols = op.dst.rows, op.dst.cols
    if isinstance(op, tile.StoreShared):
        _store_form(op, tiles)
    if not isinstance(op, tile.StoreTensorMemory) and op.transposed:
        stored_rows, stored_cols = stored_cols, stored_rows
    if stored_rows != rows or op.src_col < 0 or op.src_col + stored_cols > cols:
        raise UserError(
            f"{stored_rows} x {stored_cols} from column {op.src_col} on does not lie inside {op.src!r} "
            f"of {rows} x {cols}",
            where=op.where,
        )


def _store_form(op: tile.StoreShared, tiles: _Tiles) -> None:
    """Transposed and thread-ordered stores are of the types that have them, and exclude others."""
    size = dtype_bytes(tiles.dtype(op.dst.tile))
    if op.thread_order and (size != COLUMN_BYTES or dtype_bytes(tiles.dtype(op.src)) != COLUMN_BYTES or op.by_element):
        raise UserError(
            f"thread_order stores 32-bit elements; {op.src!r} is {tiles.dtype(op.src)}, {op.dst.tile!r} "
            f"{tiles.dtype(op.dst.tile)}",
            where=op.where,
        )
    if op.transposed and (op.by_element or not (op.thread_order or size == TRANSPOSABLE_BYTES)):
        raise UserError(
            f"a transposed store is of 16-bit elements, or in thread_order; {op.dst.tile!r} is "
            f"{tiles.dtype(op.dst.tile)}",
            where=op.where,
        )


def _transpose(op: tile.TransposeShared, tiles: _Tiles) -> None:
    _equal("the destination", (op.dst.rows, op.dst.cols), (op.src.cols, op.src.rows), op.where)
    types = tiles.dtype(op.dst.tile), tiles.dtype(op.src.tile)
    if types[0] != types[1] or dtype_bytes(types[0]) != 1:
        raise UserError(
            f"{types[1]} is to be transposed into {types[0]}; both must be of one 8-bit type",
            where=op.where,
            hint="16-bit operands need no copy: k.mma(..., transposed=True)",
        )


def _mma(op: tile.Mma, tiles: _Tiles) -> None:
    a = tiles.shape(op.a) if isinstance(op.a, str) else (op.a.rows, op.a.cols)
    a = a[::-1] if op.a_transposed else a
    acc = tiles.shape(op.acc) if isinstance(op.acc, str) else (op.acc.rows, op.acc.cols)
    cols = 2 * acc[1] if tile.is_folded(a[0], op.ctas) else acc[1]
    _equal("the second operand", (op.columns * op.ctas, op.depth), (cols, a[1]), op.where)
    _equal("the accumulator", acc, op.accumulator(a[0]), op.where)
    if op.plus is not None:
        _equal("the accumulator that is added to", tiles.shape(op.plus), acc, op.where)
        if tiles.dtype(op.plus) != "fp32":
            raise UserError(f"accumulators are fp32, {op.plus!r} is {tiles.dtype(op.plus)}", where=op.where)
    types = [tiles.dtype(op.a if isinstance(op.a, str) else op.a.tile), tiles.dtype(op.b.tile)]
    if types[0] != types[1]:
        raise UserError(f"a product of {types[0]} and {types[1]}; both operands have one type", where=op.where)
    if op.b_transposed and dtype_bytes(types[1]) != TRANSPOSABLE_BYTES:
        raise UserError(f"a transposed second operand must be of a 16-bit type, this one is {types[1]}", where=op.where)
    in_place = isinstance(op.a, tile.SharedRef) or op.a in {pool.name for pool in tiles.pool}
    if op.a_transposed and (dtype_bytes(types[0]) != TRANSPOSABLE_BYTES or not in_place):
        raise UserError(
            f"a transposed first operand lies in shared memory and is of a 16-bit type, this one is {types[0]}",
            where=op.where,
        )
    acc_type = tiles.dtype(op.acc if isinstance(op.acc, str) else op.acc.tile)
    if acc_type != "fp32":
        raise UserError(f"accumulators are fp32, this one is {acc_type}", where=op.where)


def _mma_apart(op: tile.MmaApart, tiles: _Tiles) -> None:
    """16 rows a weft of the sum, and of what is multiplied by what the weft has itself."""
    acc, b, a = (tiles.shape(name) for name in (op.acc, op.b, op.a))
    first = tiles.by_name[op.a]
    held = (b[0] // SUBPARTITIONS, b[1])
    n, depth = held[::-1] if op.b_transposed else held
    _equal("the accumulator", acc, (SUBPARTITIONS * APART_ROWS, n), op.where)
    rows = APART_ROWS if first.spread == "first" else SUBPARTITIONS * APART_ROWS
    _equal("the first operand", a[::-1] if op.a_transposed else a, (rows, depth), op.where)
    divided = first.spread != "first" and first.warp_grid == (1, SUBPARTITIONS)  # the other has a copy in each weft
    if op.a_transposed != divided:
        raise UserError(
            f"the first operand {op.a!r} is divided among {first.warp_grid[0]} x {first.warp_grid[1]} wefts, and takes "
            f"part {'transposed' if op.a_transposed else 'as it is'}",
            where=op.where,
            hint="one that takes part transposed is divided along its columns, with wefts=(1, 4)",
        )
    types = [tiles.dtype(name) for name in (op.acc, op.a, op.b)]
    if types[0] != "fp32" or types[1] != types[2] or dtype_bytes(types[1]) != TRANSPOSABLE_BYTES:
        raise UserError(
            f"wefts multiply 16-bit operands of one type into fp32, not {types[1]} and {types[2]} into {types[0]}",
            where=op.where,
        )


def _elementwise(op: tile.Elementwise, tiles: _Tiles) -> None:
    rows, width = tiles.shape(op.dst)
    cols = op.dst_cols or width
    _check_rotation(op, tiles)
    if op.dst_col < 0 or op.dst_col + cols > width:
        raise UserError(f"columns {op.dst_col} to {op.dst_col + cols} are not inside {op.dst!r}", where=op.where)
    offsets = op.source_cols or (0,) * len(op.sources)
    if len(offsets) != len(op.sources):
        raise UserError("source_cols needs one column for each source", where=op.where)
    if len(op.source_quarters) not in (0, len(op.sources)):
        raise UserError("source_quarters needs one quarter for each source", where=op.where)
    for index, (name, col) in enumerate(zip(op.sources, offsets, strict=True)):
        shape = tiles.shape(name)
        if op.quarter(index) is not None:  # each weft of the destination takes the same rows
            wefts = tiles.by_name[op.dst].warp_grid[0]
            by_columns = tiles.by_name[name].spread == "columns"
            shape = (1, shape[1] // SUBPARTITIONS) if by_columns else (shape[0] // SUBPARTITIONS * wefts, shape[1])
        vector = shape[0] == 1 and tiles.by_name[name].spread != "fragments"
        if (shape[0] != rows and not vector) or (shape[1] != 1 and not 0 <= col <= shape[1] - cols):
            raise UserError(
                f"{name!r} of {shape[0]} x {shape[1]} from column {col} on does not cover {rows} x {cols}",
                where=op.where,
            )


def _check_rotation(op: tile.Elementwise, tiles: _Tiles) -> None:
    """Pairs of columns are rotated in fp32; a thread has both in every layout."""
    if op.function != "rotate":
        return
    if any(tiles.dtype(name) != "fp32" for name in (op.dst, *op.sources[:1])):
        raise UserError(f"pairs are rotated in fp32; {op.dst!r} or {op.sources[0]!r} is not", where=op.where)
    if len(op.sources) != 2 or tiles.shape(op.sources[1])[1] == 1:
        raise UserError("rotate takes a tile and one with cosine and sine of each pair", where=op.where)


_CHECKS: tuple[tuple[tuple[type[tile.Op], ...], Callable[[Any, _Tiles], None]], ...] = (
    ((tile.TmaLoad, tile.TmaStore, tile.CpAsync), _copy),
    ((tile.CopyToPeer,), _copy_to_peer),
    ((tile.TmaAddFolded,), _add_folded),
    ((tile.LoadGlobal, tile.LoadShared, tile.LoadTensorMemory), _load),
    ((tile.StoreGlobal, tile.StoreShared, tile.StoreTensorMemory), _store),
    ((tile.TransposeShared,), _transpose),
    ((tile.Mma,), _mma),
    ((tile.MmaApart,), _mma_apart),
    ((tile.Elementwise,), _elementwise),
    ((tile.RowReduce,), _row_reduce),
    ((tile.Gate,), _gate),
    ((tile.Dequantize,), _dequantize),
    ((tile.LookUp,), _look_up),
    ((tile.LookUpRows,), verify_look_up_rows),
    ((tile.Dot,), verify_dot),
    ((tile.CopyThrough,), verify_copy_through),
)
"""What is checked of operations beside that their parts lie inside their tiles."""
