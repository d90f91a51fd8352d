"""mma.sync with both operands in registers of the warp: first operands by ldmatrix, second ones as they were made."""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import LoadShared, Mma, OwnRef
from heddle.passes.draft import whole
from heddle.passes.select import accesses, loads, sm_80_stream
from heddle.passes.select.sm_80 import MATRIX_BYTES, MATRIX_ROWS, MMA_COLS, MMA_ROWS
from heddle.passes.select.writer import RoleWriter

DEPTH = 16
"""Of one mma.sync of 16-bit types (PTX ISA)."""
OPERAND_BYTES = 2


def lower_mma(writer: RoleWriter, op: Mma) -> None:
    """HMMAs with the second operand outermost, forth and back over the first; else as `sm_80_stream`."""
    if not isinstance(op.b, OwnRef):
        sm_80_stream.lower_mma(writer, op)
        return
    first = writer.layout(op.a).tile if isinstance(op.a, str) else None
    if first is None or first.spread != "first" or not isinstance(op.acc, str) or not op.b_transposed:
        raise UserError(
            "a second operand in registers is [k, n]; the first is in registers, too, spread as first",
            where=writer.where,
            hint="load the first with k.load(a, shared[...]), and multiply with transposed=True",
        )
    acc, b = writer.layout(op.acc), writer.layout(op.b.tile)
    if dtype_bytes(b.tile.dtype) != OPERAND_BYTES or acc.cols != b.cols or b.rows % DEPTH:
        raise UserError(
            f"{op.b.tile} of {b.tile.rows} x {b.tile.cols} {b.tile.dtype} does not lie as the columns of {op.acc} do, "
            f"in steps of {DEPTH} 16-bit rows",
            where=writer.where,
        )
    for step in range(b.rows // DEPTH):
        _step(writer, op, step)


def _step(writer: RoleWriter, op: Mma, step: int) -> None:
    """All products of 16 summed elements, and their effect."""
    assert isinstance(op.b, OwnRef)
    assert isinstance(op.a, str)
    assert isinstance(op.acc, str)
    acc, b = writer.layout(op.acc), writer.layout(op.b.tile)
    rows, cols = acc.rows // MMA_ROWS, acc.cols // MMA_COLS
    first, second, sums = (writer.tile_values(name) for name in (op.a, op.b.tile, op.acc))
    steps = b.rows // DEPTH
    overwrites = op.accumulate is False and step == 0
    for col in range(cols):
        for row in range(rows) if col % 2 == 0 else range(rows - 1, -1, -1):
            writer.emit(
                "HMMA",
                sums[row * cols + col],
                (whole(first[row * steps + step]), whole(second[step * cols + col])),
                accumulates=not overwrites,
                shape=(MMA_ROWS, MMA_COLS, DEPTH),
                form="rr",
                dtype=b.tile.dtype,
            )
    reads = [
        replace(writer.tile_band(op.a, 0), col=step * DEPTH, cols=DEPTH),
        replace(writer.tile_band(op.b.tile, 0), row=step * DEPTH, rows=DEPTH),
    ]
    params = {"accumulate": 0 if overwrites else 1, "transposed": 1}
    writer.attach_effect(writer.effect("mma", reads, [writer.tile_band(op.acc, 0)], **params))


def lower_load_shared(writer: RoleWriter, op: LoadShared) -> None:
    """ldmatrix of 16 x 16 elements of a first operand; else LDS."""
    if writer.layout(op.dst).tile.spread != "first":
        loads.lower_load_shared(writer, op)
        return
    tile, layout = writer.shared_tile(op.src.tile), writer.layout(op.dst)
    if tile.dtype != layout.tile.dtype or layout.tile.cols % DEPTH:
        raise UserError(
            f"{op.dst} ({layout.tile.dtype}, {layout.tile.cols} columns) is loaded by ldmatrix from {tile.dtype} in "
            f"steps of {DEPTH} columns",
            where=writer.where,
        )
    base = accesses.shared_base(writer, op.src)
    address = writer.scalar("LOP3", base, name="address")  # the swizzle; rows differ by an immediate
    box, place = writer.shared_access(op.src), writer.tile_band(op.dst, 0)
    steps = layout.tile.cols // DEPTH
    for number, value in enumerate(writer.tile_values(op.dst)):
        row, step = divmod(number, steps)
        written = replace(place, row=row * MATRIX_ROWS, col=step * DEPTH, rows=MATRIX_ROWS, cols=DEPTH)
        read = replace(written, object=box.object, ring=box.ring, stage_offset=box.stage_offset)
        read = replace(read, row=box.row + written.row, col=box.col + written.col)
        writer.emit("LDSM", value, (address,), bytes=MATRIX_BYTES, effect=writer.effect("copy", [read], [written]))
