"""Stores of register tiles to shared and global memory by the load/store unit."""

from __future__ import annotations

from collections.abc import Iterator

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import StoreGlobal, StoreShared
from heddle.passes.draft import Operand, whole
from heddle.passes.layout_to_warps import WarpLayout
from heddle.passes.select.accesses import (
    LANES,
    REGISTER_BYTES,
    VECTOR_REGISTERS,
    access_bytes,
    advance_pointer,
    band_effects,
    check_part,
    piece,
    pointer_of,
    shared_base,
    turned_effects,
    vectors,
    width_of,
)
from heddle.passes.select.elementwise import convert, part_registers
from heddle.passes.select.writer import RoleWriter

SHARED_BANKS = 32  # of four bytes each
ELEMENT_BYTES = 2
ELEMENT_CONFLICT_WAYS = 2  # eight rows of four lanes, 8 bytes apart: with the swizzle two rows meet in each 16 bytes


def lower_store_shared(writer: RoleWriter, op: StoreShared) -> None:
    """Convert four registers at a time and store them: STSM (sm_90 on, 16-bit types) or STS."""
    tile = writer.shared_tile(op.dst.tile)
    source = writer.layout(op.src)
    rows, cols = (op.dst.cols, op.dst.rows) if op.transposed else (op.dst.rows, op.dst.cols)
    check_part(writer, op.src, op.src_col, rows, cols)
    registers = part_registers(writer, op.src, op.src_col, cols)
    size = dtype_bytes(tile.dtype)
    if op.by_element:
        stores = _store_elements(writer, registers, source.tile.dtype, tile.dtype)
        band_effects(writer, stores, "copy", op.src, op.src_col, writer.shared_access(op.dst), "write")
        return
    matrix = writer.program.architecture != "sm_80" and size == 2 and source.kind != "lane"
    plain = not (tile.swizzle_bytes or matrix or op.thread_order)
    ways = _conflict_ways(tile.cols * size, source.kind == "lane") if plain else 1
    wide = matrix or op.thread_order
    base, width = shared_base(writer, op.dst), VECTOR_REGISTERS if wide else width_of(source, size)
    stores = []
    address = base
    for group in _converted(writer, registers, source.tile.dtype, tile.dtype, width):
        address = writer.scalar("LOP3", base, name="address") if len(stores) % 2 == 0 else address
        writer.emit(
            "STSM" if matrix else "STS",
            src=(address, group),
            bytes=LANES * REGISTER_BYTES * group.count,
            conflict_ways=ways,
        )
        stores.append(len(writer.code) - 1)
    if op.transposed:
        turned_effects(writer, stores, "copy", op.src, op.src_col, writer.shared_access(op.dst))
        return
    band_effects(writer, stores, "copy", op.src, op.src_col, writer.shared_access(op.dst), "write")


def _store_elements(writer: RoleWriter, registers: list[Operand], dtype: str, target: str) -> list[int]:
    """Each 16-bit element by itself: a 64-bit generic address with its swizzle, and a permute for every second one."""
    if dtype_bytes(target) != ELEMENT_BYTES or dtype_bytes(dtype) != REGISTER_BYTES:
        raise UserError(
            f"elements are stored one by one from 32 to 16 bits, not {dtype} to {target}", where=writer.where
        )
    base = writer.value("generic_base", 2)
    writer.emit("IMAD", whole(base))
    stores = []
    for pair in _converted(writer, registers, dtype, target, 1):
        upper = writer.scalar("PRMT", pair, name="upper")
        for element in (pair, upper):
            address = writer.value("address", 2)
            sum_low = writer.scalar("IADD3", Operand(base, 0), name="sum")
            row = writer.scalar("LOP3", sum_low, name="row")
            writer.emit("LOP3", Operand(address, 0), (writer.scalar("SHF", row, name="swizzle"), sum_low))
            writer.emit("IMAD", Operand(address, 1), (Operand(base, 1),))
            writer.emit(
                "STS",
                src=(whole(address), element),
                bytes=LANES * ELEMENT_BYTES,
                conflict_ways=ELEMENT_CONFLICT_WAYS,
            )
            stores.append(len(writer.code) - 1)
    return stores


def lower_store_global(writer: RoleWriter, op: StoreGlobal) -> None:
    """Convert and store each register pair (a fragment) or four registers (a row a lane), or add atomically."""
    layout = writer.layout(op.src)
    rows, cols = (op.dst.cols, op.dst.rows) if op.transposed else (op.dst.rows, op.dst.cols)
    check_part(writer, op.src, op.src_col, rows, cols)
    if op.transposed and layout.kind == "lane":
        _store_columns(writer, op, layout)
        return
    tensor = writer.tables.tensor(op.dst.tensor, writer.where)
    size = dtype_bytes(tensor.dtype)
    registers = part_registers(writer, op.src, op.src_col, cols)
    width = width_of(layout, size)
    if op.transposed:
        _check_turned(writer, op, layout, size)
    if op.transposed or (op.reduce and writer.program.architecture == "sm_80"):
        width = 1  # vector reductions exist from sm_90 on (PTX ISA, red)
    source_bytes = dtype_bytes(layout.tile.dtype)
    count = -(-len(registers) * size // (width * max(source_bytes, size)))
    direction = "reduce" if op.reduce else "store"
    stream = writer.tables.stream(op.dst, direction, writer.level(op.dst.loop), writer.where)
    pointer = pointer_of(writer, op.dst)
    stores: list[int] = []
    for index, group in enumerate(_converted(writer, registers, layout.tile.dtype, tensor.dtype, width)):
        if index % 8 == 0 and index:
            pointer = advance_pointer(writer, pointer)
        writer.emit(
            "RED" if op.reduce else "STG",
            src=(Operand(pointer, 0, 2), group),
            stream=piece(stream.name, op.dst, layout, index, count),
            bytes=access_bytes(layout, group),
        )
        stores.append(len(writer.code) - 1)
    memory = writer.global_access(op.dst)
    if op.transposed:
        turned_effects(writer, stores, direction, op.src, op.src_col, memory)
        return
    band_effects(writer, stores, direction, op.src, op.src_col, memory, "write")


def _store_columns(writer: RoleWriter, op: StoreGlobal, layout: WarpLayout) -> None:
    """Column by column of a tile whose rows are lanes: neighbouring lanes store neighbouring 16-bit elements.

    Two columns are packed by one conversion; a permute brings down the upper one.
    """
    tensor = writer.tables.tensor(op.dst.tensor, writer.where)
    if op.reduce or dtype_bytes(tensor.dtype) != ELEMENT_BYTES or dtype_bytes(layout.tile.dtype) != REGISTER_BYTES:
        raise UserError(
            f"rows of lanes are stored transposed as 16-bit elements of 32-bit ones; {op.src} is {layout.tile.dtype}",
            where=writer.where,
        )
    registers = part_registers(writer, op.src, op.src_col, op.dst.rows)
    stream = writer.tables.stream(op.dst, "store", writer.level(op.dst.loop), writer.where)
    pointer = pointer_of(writer, op.dst)
    stores: list[int] = []
    for pair in _converted(writer, registers, layout.tile.dtype, tensor.dtype, 1):
        if stores:
            pointer = advance_pointer(writer, pointer)
        for element in (pair, writer.scalar("PRMT", pair, name="upper")):
            writer.emit(
                "STG",
                src=(Operand(pointer, 0, 2), element),
                stream=piece(stream.name, op.dst, layout, len(stores), len(registers)),
                bytes=LANES * ELEMENT_BYTES,
            )
            stores.append(len(writer.code) - 1)
    turned_effects(writer, stores, "store", op.src, op.src_col, writer.global_access(op.dst))


def _check_turned(writer: RoleWriter, op: StoreGlobal, layout: WarpLayout, element_bytes: int) -> None:
    """Only 32-bit elements of fragments have addresses of their own: a sector holds eight rows of a column."""
    source_bytes = dtype_bytes(layout.tile.dtype)
    if layout.kind == "rows" and layout.cols == 1 and source_bytes == element_bytes:
        return  # one element a warp
    if layout.kind not in ("fragment", "group") or element_bytes != REGISTER_BYTES or source_bytes != REGISTER_BYTES:
        raise UserError(
            f"a transposed store to global memory is of matrix fragments of 32-bit elements; {op.src} is "
            f"{layout.tile.dtype}, layout {layout.kind}",
            where=writer.where,
        )


def _converted(
    writer: RoleWriter, registers: list[Operand], source_dtype: str, target_dtype: str, width: int
) -> Iterator[Operand]:
    """Groups of `width` registers to store; the next group is converted before the caller stores this one."""
    source_bytes, target_bytes = dtype_bytes(source_dtype), dtype_bytes(target_dtype)
    if target_bytes > source_bytes:
        raise UserError("a store cannot widen elements; cast the tile first", where=writer.where)
    if source_dtype == target_dtype:
        yield from vectors(registers, width)
        return
    ratio = source_bytes // target_bytes
    ready: Operand | None = None
    for start in range(0, len(registers), width * ratio):
        part = registers[start : start + width * ratio]
        value = writer.value("packed", len(part) // ratio)
        convert(writer, part, [Operand(value, i) for i in range(value.count)], source_dtype, target_dtype)
        if ready is not None:
            yield ready
        ready = whole(value)
    if ready is not None:
        yield ready


def _conflict_ways(row_bytes: int, lane_rows: bool) -> int:
    """Bank conflicts of 8 rows (fragments) or 32 rows (a row a lane) at plain row pitch."""
    rows = LANES if lane_rows else 8
    words = row_bytes // REGISTER_BYTES
    distinct = len({(row * words) % SHARED_BANKS for row in range(rows)})
    return max(1, min(rows // max(1, distinct), 8))
