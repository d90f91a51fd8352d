"""TMA: bulk loads and stores of boxes, one elected lane of one warp issuing them."""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import CopyToPeer, SharedRef, TmaAddFolded, TmaLoad, TmaStore, TmaStoreWait
from heddle.ir.warp import Access, StreamRef
from heddle.passes.draft import Operand
from heddle.passes.select.synchronisation import barrier_address
from heddle.passes.select.writer import RoleWriter

SWIZZLE_BYTES = 128  # widest inner extent of a swizzled box (CUDA driver API, cuTensorMapEncodeTiled)
BOX_EXTENT = 256  # largest extent of a box (same source)
BULK_ALIGNMENT_BYTES = 16  # rows of a tensor behind a bulk copy start at multiples of this (same source)


def lower_tma_load(writer: RoleWriter, op: TmaLoad) -> None:
    """UTMALDG for each 128-byte column strip and 256 rows of the box; with multicast, this CTA's share of the rows."""
    _check_rows(writer, op.src.tensor)
    stream = writer.tables.stream(op.src, "load", writer.level(op.src.loop), writer.where, op.multicast)
    rows, strips = _rows(writer, op.src.rows, op.multicast), _strips(writer, op.dst)
    bands = -(-rows // BOX_EXTENT)
    reference = writer.barrier(op.barrier)
    signal = barrier_address(writer, op.barrier)
    tile_bytes = rows * op.dst.cols * dtype_bytes(writer.shared_tile(op.dst.tile).dtype)
    params = {"ctas": op.multicast} if op.multicast > 1 else {}
    for band in range(bands):
        for strip in range(strips):
            writer.emit(
                "UTMALDG",
                src=(*_operands(writer, op.dst, op.src.tensor), signal),
                stream=StreamRef(
                    name=stream.name,
                    offset=op.src.ahead,
                    part=band * strips + strip,
                    parts=bands * strips * op.multicast,
                ),
                barrier=reference,
                bytes=tile_bytes // (bands * strips),
                ctas=op.multicast,
                by="role",
                effect=writer.effect(
                    "copy_async",
                    [_part(writer.global_access(op.src), rows // bands, strips, band, strip, rows if params else 0)],
                    [_part(writer.shared_access(op.dst), rows // bands, strips, band, strip, rows if params else 0)],
                    **params,
                ),
            )


def lower_tma_store(writer: RoleWriter, op: TmaStore) -> None:
    """UTMASTG (or UTMAREDG) for each strip, then the commit of the group."""
    _check_rows(writer, op.dst.tensor)
    direction = "reduce" if op.reduce else "store"
    stream = writer.tables.stream(op.dst, direction, writer.level(op.dst.loop), writer.where)
    strips, bands = _strips(writer, op.src), -(-op.src.rows // BOX_EXTENT)
    tile_bytes = op.src.rows * op.src.cols * dtype_bytes(writer.shared_tile(op.src.tile).dtype)
    for band in range(bands):
        for strip in range(strips):
            writer.emit(
                "UTMAREDG" if op.reduce else "UTMASTG",
                src=_operands(writer, op.src, op.dst.tensor),
                stream=StreamRef(
                    name=stream.name, offset=op.dst.ahead, part=band * strips + strip, parts=bands * strips
                ),
                bytes=tile_bytes // (bands * strips),
                by="role",
                effect=writer.effect(
                    direction,
                    [_part(writer.shared_access(op.src), op.src.rows // bands, strips, band, strip, 0)],
                    [_part(writer.global_access(op.dst), op.src.rows // bands, strips, band, strip, 0)],
                ),
            )
    writer.emit("UTMACMDFLUSH", by="role")


def lower_tma_add_folded(writer: RoleWriter, op: TmaAddFolded) -> None:
    """UTMAREDG of one piece of memory, then the commit of the group."""
    stream = writer.tables.stream(op.dst, "reduce", writer.level(op.dst.loop), writer.where)
    cols, parts = op.src.cols, op.dst.cols // (2 * op.src.cols)
    left = replace(writer.global_access(op.dst), cols=cols)
    columns = (left.col + op.part * cols, left.col + op.dst.cols // 2 + op.part * cols)
    writer.emit(
        "UTMAREDG",
        src=_operands(writer, op.src, op.dst.tensor),
        stream=StreamRef(name=stream.name, offset=op.dst.ahead, part=op.part, parts=parts),
        bytes=op.src.rows * cols * dtype_bytes(writer.shared_tile(op.src.tile).dtype),
        by="role",
        effect=writer.effect("reduce", [writer.shared_access(op.src)], [replace(left, col=col) for col in columns]),
    )
    writer.emit("UTMACMDFLUSH", by="role")


def lower_copy_to_peer(writer: RoleWriter, op: CopyToPeer) -> None:
    """UBLKCP.S.S: addresses here and in the peer's window, which has its mbarrier, too, and the number of bytes."""
    source, target = (
        writer.scalar("UIADD3", writer.kept(f"{ref.tile}.address"), name="address") for ref in (op.src, op.dst)
    )
    amount = writer.scalar("UMOV", name="bytes")
    writer.emit(
        "UBLKCP.S.S",
        src=(target, source, amount, barrier_address(writer, op.barrier)),
        barrier=writer.barrier(op.barrier),
        bytes=op.src.rows * op.src.cols * dtype_bytes(writer.shared_tile(op.src.tile).dtype),
        by="role",
        effect=writer.effect("copy_async", [writer.shared_access(op.src)], [writer.shared_access(op.dst)]),
    )


def lower_tma_store_wait(writer: RoleWriter, op: TmaStoreWait) -> None:
    """Wait until bulk stores have read shared memory (warps that issued none pass at once)."""
    writer.emit("UTMADEPBAR", pending=op.pending)


def _operands(writer: RoleWriter, ref: SharedRef, tensor: str) -> tuple[Operand, ...]:
    """Uniform registers of one bulk copy: shared address of the stage, coordinates, descriptor."""
    base = writer.kept(f"{ref.tile}.address")
    address = writer.scalar("ULEA", base, writer.stage(ref.ring), name="address") if ref.ring else base
    descriptor = writer.kept(f"{tensor}.descriptor")
    coordinate = writer.scalar("UIADD3", name="coordinate")
    address = writer.scalar("UIADD3", address, name="address")
    return (address, coordinate, descriptor)


def _part(access: Access, rows: int, strips: int, band: int, strip: int, cta_rows: int) -> Access:
    cols = access.cols // strips
    return replace(
        access,
        row=access.row + band * rows,
        col=access.col + strip * cols,
        rows=rows,
        cols=cols,
        cta_row=access.cta_row + cta_rows,
    )


def _strips(writer: RoleWriter, ref: SharedRef) -> int:
    tile = writer.shared_tile(ref.tile)
    width = ref.cols * dtype_bytes(tile.dtype)
    strips = -(-width // (tile.swizzle_bytes or BOX_EXTENT * dtype_bytes(tile.dtype)))
    if ref.cols % strips:
        raise UserError(
            f"a bulk copy of {ref.cols} columns ({width} bytes) does not divide into strips of {SWIZZLE_BYTES} bytes",
            where=writer.where,
            hint="make the tile a multiple of 128 bytes wide, or narrower",
        )
    return strips


def _rows(writer: RoleWriter, rows: int, multicast: int) -> int:
    if rows % multicast:
        raise UserError(f"{rows} rows do not divide among {multicast} CTAs of a multicast", where=writer.where)
    return rows // multicast


def _check_rows(writer: RoleWriter, name: str) -> None:
    tensor = writer.tables.tensor(name, writer.where)
    row_bytes = tensor.shape[-1] * dtype_bytes(tensor.dtype)
    if row_bytes % BULK_ALIGNMENT_BYTES:
        raise UserError(
            f"rows of tensor {name} are {row_bytes} bytes; bulk copies need a multiple of {BULK_ALIGNMENT_BYTES} bytes",
            where=writer.where,
            hint="pad the tensor or choose a kernel that copies without TMA",
        )
