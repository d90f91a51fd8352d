"""Ampere: cp.async copies, ldmatrix fragments with double buffering, mma.sync."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import CpAsync, Mma, SharedRef
from heddle.ir.warp import Access, DataObject, StreamRef
from heddle.passes.draft import Operand, Value, whole
from heddle.passes.layout_to_warps import LANES, WarpLayout
from heddle.passes.pipelined import FirstFragments, PipelinedMma
from heddle.passes.select.flow import Lower
from heddle.passes.select.writer import RoleWriter

STEP_BYTES = 32  # k extent of one mma.sync (PTX ISA: m16n8k16 of 16 bit, m16n8k8 of tf32)
MMA_ROWS, MMA_COLS = 16, 8
MATRIX_BYTES = 512  # LDSM.x4: four 8 x 8 matrices of 16 bit
FRAGMENT_SETS = 2  # double buffering
MATRIX_ROWS = 16  # rows (m or n) that one LDSM.x4 covers at one k-step


Piece = Callable[[Access, int, int, int], Access]
"""Of a box: the part that each warp takes with its LDGSTS number `index`; (box, elements, index, warps)."""


def lower_cp_async(writer: RoleWriter, op: CpAsync, own_piece: Piece | None = None) -> None:
    """LDGSTS by all warps of the role; each takes a 64-bit pointer and a shared address, under a bounds predicate.

    The warps take turns, or `own_piece` says what each copies of its own part.
    """
    tile = writer.shared_tile(op.dst.tile)
    size = dtype_bytes(tile.dtype)
    access_bytes = LANES * op.bytes_per_lane
    total, warps = op.dst.rows * op.dst.cols * size, writer.role.warps
    if total % (access_bytes * warps):
        raise UserError(
            f"a cooperative copy of {op.dst.rows} x {op.dst.cols} {tile.dtype} ({total} bytes) does not divide into "
            f"{access_bytes} bytes for each of {warps} warps",
            where=writer.where,
        )
    stream = writer.tables.stream(op.src, "load", writer.level(op.src.loop), writer.where)
    pointer = writer.kept(f"{op.src.tensor}.pointer", 2, "vector", "IMAD")
    shared = writer.kept(f"{op.dst.tile}.copy_address", file="vector", op="IMAD")
    inside = writer.scalar("ISETP", name="inside")
    count, here = total // access_bytes, pointer
    piece, step, stride = (own_piece, 1, count // warps) if own_piece else (copied_piece, warps, 1)
    for index in range(count // warps):
        here = here if index == 0 else next_pointer(writer, here)
        address = writer.scalar("IADD3", shared, *([writer.stage(op.dst.ring)] if op.dst.ring else []), name="copy")
        writer.emit(
            "LDGSTS",
            src=(here, address, inside),
            stream=StreamRef(
                name=stream.name,
                offset=op.src.ahead,
                part=index * step,
                parts=count,
                part_by_rank=warps > 1,
                rank_stride=stride,
            ),
            bytes=access_bytes,
            effect=writer.effect(
                "copy_async",
                [piece(writer.global_access(op.src), access_bytes // size, index, warps)],
                [piece(writer.shared_access(op.dst), access_bytes // size, index, warps)],
            ),
        )
    writer.emit("IADD3", Operand(pointer.value, 0), (Operand(pointer.value, 0),))
    writer.emit("IMAD", Operand(pointer.value, 1), (Operand(pointer.value, 1),))


def next_pointer(writer: RoleWriter, pointer: Operand) -> Operand:
    following = writer.value("pointer", 2)
    writer.emit("IADD3", Operand(following, 0), (Operand(pointer.value, 0),))
    writer.emit("IMAD", Operand(following, 1), (Operand(pointer.value, 1),))
    return whole(following)


def copied_piece(box: Access, elements: int, index: int, warps: int) -> Access:
    """The elements of one LDGSTS of each warp: whole rows, or a part of one row."""
    if box.cols <= elements:
        rows = elements // box.cols
        return replace(box, row=box.row + index * warps * rows, rows=rows, rank_row=rows)
    per_row = box.cols // elements
    if warps % per_row == 0:
        row = box.row + index * (warps // per_row)
        return replace(box, row=row, rows=1, cols=elements, rank_row=1, rank_col=elements, rank_cols=per_row)
    if per_row % warps == 0:
        row, col = divmod(index * warps, per_row)
        return replace(
            box,
            row=box.row + row,
            col=box.col + col * elements,
            rows=1,
            cols=elements,
            rank_col=elements,
            rank_cols=warps,
        )
    raise UserError(f"rows of {box.cols} elements do not divide among {warps} warps of a cooperative copy")


@dataclass(frozen=True, slots=True)
class FragmentLoad:
    """One LDSM to be: destination, lane address, effect; `new_step`: the first of a k-step after the first."""

    dst: Value
    base: Operand
    new_step: bool
    bytes: int
    effect: int


@dataclass(frozen=True, slots=True)
class Step:
    """Fragments of one k-step: A by 16 rows, B by 8 columns, and the loads that fill them, B's by 16 columns."""

    a: tuple[Operand, ...]
    b: tuple[Operand, ...]
    a_loads: tuple[FragmentLoad, ...]
    b_loads: tuple[FragmentLoad, ...]

    @property
    def loads(self) -> tuple[FragmentLoad, ...]:
        """All loads, A and B in turn."""
        return _alternate(self.a_loads, self.b_loads)


@dataclass(frozen=True, slots=True)
class Product:
    """The HMMAs of one product of a role: a warp's part of `op`, `k` deep a step."""

    writer: RoleWriter
    op: Mma
    layout: WarpLayout
    k: int

    @property
    def cols(self) -> int:
        """Blocks of 8 columns."""
        return self.layout.cols // MMA_COLS

    def rows(self, col: int) -> range:
        """Blocks of 16 rows in the order for a block of columns: forth and back, so that A is used twice in a row."""
        count = self.layout.rows // MMA_ROWS
        return range(count) if col % 2 == 0 else range(count - 1, -1, -1)

    def emit(self, step: Step, index: int, row: int, col: int) -> None:
        """One HMMA of k-step `index`."""
        assert isinstance(self.op.acc, str)
        accumulators = self.writer.tile_values(self.op.acc)
        self.writer.emit(
            "HMMA",
            accumulators[row * self.cols + col],
            (step.a[row], step.b[col]),
            accumulates=not self._overwrites(index),
            shape=(MMA_ROWS, MMA_COLS, self.k),
            form="rr",
            dtype=self.writer.shared_tile(self.op.b.tile).dtype,
        )

    def attach(self, index: int) -> None:
        """Give the last HMMA of a k-step the effect of the whole step."""
        effect = _effect(self.writer, self.op, self.layout, index, self.k, self._overwrites(index))
        self.writer.attach_effect(effect)

    def _overwrites(self, index: int) -> bool:
        return self.op.accumulate is False and index == 0


def lower_first_fragments(writer: RoleWriter, op: FirstFragments) -> None:
    """Fragments of the first k-step, ahead of a `PipelinedMma`."""
    _load_first(writer, op.mma)


def lower_pipelined_mma(writer: RoleWriter, op: PipelinedMma, lower: Lower) -> None:
    """The products; before the last k-step what comes between, then the next tile's first loads among its HMMAs."""

    def between() -> tuple[FragmentLoad, ...]:
        for inner in op.between:
            lower(writer, inner)
        writer.begin(op.mma)
        return k_steps(writer, op.mma)[0].loads if op.prefetch else ()

    _products(writer, op.mma, between)


def _load_first(writer: RoleWriter, op: Mma) -> None:
    for load in k_steps(writer, op)[0].loads:
        emit_load(writer, load, {})


def _products(writer: RoleWriter, op: Mma, between: Callable[[], tuple[FragmentLoad, ...]] | None) -> None:
    layout, count, k = check_product(writer, op)
    steps = k_steps(writer, op)
    for index, step in enumerate(steps):
        following = steps[index + 1].loads if index + 1 < count else between() if between else ()
        _multiply(writer, op, layout, step, following, index, k)


def k_steps(writer: RoleWriter, op: Mma, sets: int = FRAGMENT_SETS) -> list[Step]:
    """All k-steps of a product at the current stage. `sets` of fragment registers alternate, and stay the same."""
    layout, count, k = check_product(writer, op)
    bases = _bases(writer, op)
    sets = sets if count % sets == 0 else count
    return [_step(writer, op, layout, bases, (index, index % sets), count * k, k) for index in range(count)]


def check_product(writer: RoleWriter, op: Mma) -> tuple[WarpLayout, int, int]:
    """Return a warp's part of the accumulator, the k-steps and their depth; raises UserError if mma.sync cannot."""
    if not isinstance(op.acc, str):
        raise UserError(
            "mma.sync accumulates in registers; the accumulator is a tensor-memory tile", where=writer.where
        )
    if op.accumulate == "first_iteration":
        raise UserError("mma.sync always accumulates; fill the accumulator before the loop", where=writer.where)
    layout = writer.layout(op.acc)
    k = STEP_BYTES // dtype_bytes(writer.shared_tile(op.b.tile).dtype)
    a = _tile_shape(writer, op.a) if isinstance(op.a, str) else (op.a.rows, op.a.cols)
    a = a[::-1] if op.a_transposed else a
    if a != (layout.tile.rows, op.depth) or op.columns != layout.tile.cols or op.depth % k:
        raise UserError(
            f"mma of a {a[0]} x {a[1]} and b {op.columns} x {op.depth} into {layout.tile.rows} x {layout.tile.cols}: "
            f"needs a [m, k], b [n, k] and k a multiple of {k}",
            where=writer.where,
        )
    return layout, op.depth // k, k


def _tile_shape(writer: RoleWriter, name: str) -> tuple[int, int]:
    tile = writer.layout(name).tile
    return tile.rows, tile.cols


def _bases(writer: RoleWriter, op: Mma) -> dict[str, Operand]:
    """Lane addresses of A and B at the current stage."""
    bases = {}
    for name, ref in (("a", op.a), ("b", op.b)):
        if isinstance(ref, SharedRef):
            lane = writer.kept(f"{ref.tile}.matrix_address", file="vector", op="LOP3")
            bases[name] = writer.scalar("IMAD", lane, writer.stage(ref.ring), name="matrix") if ref.ring else lane
    return bases


def _step(
    writer: RoleWriter, op: Mma, layout: WarpLayout, bases: dict[str, Operand], at: tuple[int, int], depth: int, k: int
) -> Step:
    """A k-step; `at`: which one, and the set of fragment registers that it takes."""
    grid_cols = layout.tile.warp_grid[1]
    a_loads: list[FragmentLoad] = []
    b_loads: list[FragmentLoad] = []
    if isinstance(op.a, SharedRef):
        place = replace(writer.shared_access(op.a), rank_cols=grid_cols)
        if op.a_transposed:  # ldmatrix.trans: the warps' rows of the product lie along the tile's columns
            place = replace(place, rank_col=layout.rows, rank_swap=True)
        else:
            place = replace(place, rank_row=layout.rows)
        a = _operand(writer, op, "a", place, bases["a"], layout.rows, at, depth, k, a_loads)
    else:
        assert isinstance(op.a, str)
        a = _register_operand(writer, op.a, layout, at[0], depth // k)
    assert isinstance(op.b, SharedRef)
    place = writer.shared_access(op.b)
    if op.b_transposed:  # ldmatrix.trans: the warps' columns of the product lie along the tile's columns
        place = replace(place, rank_col=layout.cols, rank_cols=grid_cols)
    else:
        place = replace(place, rank_row=layout.cols, rank_cols=grid_cols, rank_swap=True)
    b = _operand(writer, op, "b", place, bases["b"], layout.cols, at, depth, k, b_loads)
    halves = tuple(Operand(o.value, half * (o.count // 2), o.count // 2) for o in b for half in range(2))
    return Step(a, halves[: layout.cols // MMA_COLS], tuple(a_loads), tuple(b_loads))


def _alternate(left: tuple[FragmentLoad, ...], right: tuple[FragmentLoad, ...]) -> tuple[FragmentLoad, ...]:
    both = min(len(left), len(right))
    pairs = tuple(load for pair in zip(left[:both], right[:both], strict=True) for load in pair)
    return pairs + left[both:] + right[both:]


def _operand(
    writer: RoleWriter,
    op: Mma,
    name: str,
    place: Access,
    base: Operand,
    extent: int,
    at: tuple[int, int],
    depth: int,
    k: int,
    loads: list[FragmentLoad],
) -> tuple[Operand, ...]:
    """LDSM.x4 (or x2 for eight rows left) covering `extent` rows of the warp's operand at one k-step."""
    index, chosen = at
    mirror = _mirror(writer, op, name, extent, depth)
    operands = []
    for row in range(0, extent, MATRIX_ROWS):
        rows = min(MATRIX_ROWS, extent - row)
        key = (op.acc, name, row, chosen)
        if key not in writer.fragments:
            writer.fragments[key] = writer.value(f"{name}{row}", 4 * rows // MATRIX_ROWS)
        value = writer.fragments[key]
        if _turned(op, name):
            source = replace(place, row=place.row + index * k, col=place.col + row, rows=k, cols=rows)
            target = Access(object=mirror, row=index * k, col=row, rows=k, cols=rows)
        else:
            source = replace(place, row=place.row + row, col=place.col + index * k, rows=rows, cols=k)
            target = Access(object=mirror, row=row, col=index * k, rows=rows, cols=k)
        effect = writer.effect("copy", [source], [target])
        loads.append(FragmentLoad(value, base, index > 0 and row == 0, MATRIX_BYTES * rows // MATRIX_ROWS, effect))
        operands.append(whole(value))
    return tuple(operands)


def _turned(op: Mma, name: str) -> bool:
    """Whether operand `name` is stored with the extent that is summed over along its rows."""
    return op.b_transposed if name == "b" else op.a_transposed


def _mirror(writer: RoleWriter, op: Mma, name: str, extent: int, depth: int) -> str:
    """The object that holds a warp's fragments of one tile."""
    dtype = writer.shared_tile(op.b.tile).dtype
    return writer.tables.add_object(
        DataObject(
            name=f"{writer.role.name}.{op.acc}.{name}",
            space="register",
            shape=(depth, extent) if _turned(op, name) else (extent, depth),
            dtype=dtype,
            scope="warp",
        )
    )


def _register_operand(writer: RoleWriter, name: str, layout: WarpLayout, index: int, count: int) -> tuple[Operand, ...]:
    """A operand held in registers: one 16 x 16 atom of the tile for each band of 16 rows."""
    atoms = writer.tile_values(name)
    per_row = len(atoms) // (layout.rows // MMA_ROWS)
    if per_row != count:
        raise UserError(f"register operand {name} does not match the depth of the product", where=writer.where)
    return tuple(whole(atoms[row * per_row + index]) for row in range(layout.rows // MMA_ROWS))


def emit_load(writer: RoleWriter, load: FragmentLoad, addresses: dict[int, Operand]) -> None:
    """One LDSM; the first of a k-step computes the swizzled address, the others differ by an immediate."""
    key = load.base.value.id
    if load.new_step:
        addresses[key] = writer.scalar("LOP3", load.base, name="matrix")
    address = addresses.get(key, load.base)
    writer.emit("LDSM", load.dst, (address,), bytes=load.bytes, effect=load.effect)


def _multiply(
    writer: RoleWriter, op: Mma, layout: WarpLayout, step: Step, following: tuple[FragmentLoad, ...], index: int, k: int
) -> None:
    """All HMMAs of a k-step, B outermost and A in alternating direction, with the next loads spread among them."""
    product = Product(writer, op, layout, k)
    order = [(row, col) for col in range(product.cols) for row in product.rows(col)]
    addresses: dict[int, Operand] = {}
    loads = list(following)
    gap = max(1, len(order) // (2 * len(loads))) if loads else 0  # early: ldmatrix takes as long as four HMMAs
    for position, (row, col) in enumerate(order):
        if loads and position % gap == 0:
            emit_load(writer, loads.pop(0), addresses)
        product.emit(step, index, row, col)
    product.attach(index)
    for load in loads:
        emit_load(writer, load, addresses)


def _effect(writer: RoleWriter, op: Mma, layout: WarpLayout, index: int, k: int, overwrites: bool) -> int:
    """The whole warp's product of one k-step, on its last HMMA."""
    assert isinstance(op.acc, str)
    prefix, col = f"{writer.role.name}.{op.acc}", index * k
    if isinstance(op.a, SharedRef):
        a = Access(object=f"{prefix}.a", col=col, rows=layout.rows, cols=k)
        if op.a_transposed:
            a = Access(object=f"{prefix}.a", row=col, rows=k, cols=layout.rows)
    else:
        assert isinstance(op.a, str)
        a = replace(writer.tile_band(op.a, 0), col=index * k, cols=k)
    b = Access(object=f"{prefix}.b", col=col, rows=layout.cols, cols=k)
    params = {"accumulate": 0 if overwrites else 1}
    if op.b_transposed:
        b = Access(object=f"{prefix}.b", row=col, rows=k, cols=layout.cols)
        params["transposed"] = 1
    if op.a_transposed:
        params["a_transposed"] = 1
    return writer.effect("mma", [a, b], [writer.tile_band(op.acc, 0)], **params)
