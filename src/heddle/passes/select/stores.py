"""Moves between register tiles and shared or global memory by the load/store unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import GlobalRef, LoadGlobal, LoadShared, SharedRef, StoreGlobal, StoreShared
from heddle.ir.warp import Access, StreamRef
from heddle.passes.draft import Operand, Value, whole
from heddle.passes.layout_to_warps import ATOM_COLS, ATOM_LANE_COLS, WarpLayout
from heddle.passes.select.elementwise import convert, part_registers, sharing_lanes
from heddle.passes.select.writer import RoleWriter

LANES = 32
REGISTER_BYTES = 4
VECTOR_REGISTERS = 4  # widest access of a lane: 16 bytes
SHARED_BANKS = 32  # of four bytes each
ELEMENT_BYTES = 2
ELEMENT_CONFLICT_WAYS = 2  # eight rows of four lanes, 8 bytes apart: with the swizzle two rows meet in each 16 bytes


def lower_store_shared(writer: RoleWriter, op: StoreShared) -> None:
    """Convert four registers at a time and store them: STSM (sm_90 on, 16-bit types) or STS."""
    tile = writer.shared_tile(op.dst.tile)
    source = writer.layout(op.src)
    rows, cols = (op.dst.cols, op.dst.rows) if op.transposed else (op.dst.rows, op.dst.cols)
    _check_part(writer, op.src, op.src_col, rows, cols)
    registers = part_registers(writer, op.src, op.src_col, cols)
    size = dtype_bytes(tile.dtype)
    if op.by_element:
        stores = _store_elements(writer, registers, source.tile.dtype, tile.dtype)
        _band_effects(writer, stores, "copy", op.src, op.src_col, writer.shared_access(op.dst), "write")
        return
    matrix = writer.program.architecture != "sm_80" and size == 2 and source.kind != "lane"
    plain = not (tile.swizzle_bytes or matrix or op.thread_order)
    ways = _conflict_ways(tile.cols * size, source.kind == "lane") if plain else 1
    wide = matrix or op.thread_order
    base, width = shared_base(writer, op.dst), VECTOR_REGISTERS if wide else _width(source, size)
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
        _turned_effects(writer, stores, "copy", op.src, op.src_col, writer.shared_access(op.dst))
        return
    _band_effects(writer, stores, "copy", op.src, op.src_col, writer.shared_access(op.dst), "write")


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


def lower_load_shared(writer: RoleWriter, op: LoadShared) -> None:
    """LDS of up to 16 bytes a lane."""
    tile, layout = writer.shared_tile(op.src.tile), writer.layout(op.dst)
    if tile.dtype != layout.tile.dtype:
        raise UserError(
            f"shared tile {tile.name} is {tile.dtype}, register tile {op.dst} is {layout.tile.dtype}",
            where=writer.where,
        )
    base = shared_base(writer, op.src)
    loads: list[int] = []
    for group in _vectors(writer.tile_registers(op.dst), _width(layout, dtype_bytes(tile.dtype))):
        lanes = 1 if layout.kind == "vector" else LANES  # all lanes read the same words: one broadcast
        writer.emit("LDS", group, (base,), bytes=lanes * REGISTER_BYTES * group.count)
        loads.append(len(writer.code) - 1)
    _band_effects(writer, loads, "copy", op.dst, 0, writer.shared_access(op.src), "read")


def lower_store_global(writer: RoleWriter, op: StoreGlobal) -> None:
    """Convert and store each register pair (a fragment) or four registers (a row a lane), or add atomically."""
    layout = writer.layout(op.src)
    rows, cols = (op.dst.cols, op.dst.rows) if op.transposed else (op.dst.rows, op.dst.cols)
    _check_part(writer, op.src, op.src_col, rows, cols)
    if op.transposed and layout.kind == "lane":
        _store_columns(writer, op, layout)
        return
    tensor = writer.tables.tensor(op.dst.tensor, writer.where)
    size = dtype_bytes(tensor.dtype)
    registers = part_registers(writer, op.src, op.src_col, cols)
    width = _width(layout, size)
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
            bytes=_access_bytes(layout, group),
        )
        stores.append(len(writer.code) - 1)
    memory = writer.global_access(op.dst)
    if op.transposed:
        _turned_effects(writer, stores, direction, op.src, op.src_col, memory)
        return
    _band_effects(writer, stores, direction, op.src, op.src_col, memory, "write")


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
    _turned_effects(writer, stores, "store", op.src, op.src_col, writer.global_access(op.dst))


def _check_turned(writer: RoleWriter, op: StoreGlobal, layout: WarpLayout, element_bytes: int) -> None:
    """Only 32-bit elements of fragments have addresses of their own: a sector holds eight rows of a column."""
    source_bytes = dtype_bytes(layout.tile.dtype)
    if layout.kind not in ("fragment", "group") or element_bytes != REGISTER_BYTES or source_bytes != REGISTER_BYTES:
        raise UserError(
            f"a transposed store to global memory is of matrix fragments of 32-bit elements; {op.src} is "
            f"{layout.tile.dtype}, layout {layout.kind}",
            where=writer.where,
        )


def lower_load_global(writer: RoleWriter, op: LoadGlobal) -> None:
    """LDG of register pairs (fragments hold two neighbours) or four registers (a row a lane, whole rows a warp)."""
    layout = writer.layout(op.dst)
    if layout.kind == "vector":
        raise UserError(
            f"{op.dst} is a vector of which each lane has all columns; it is loaded from shared memory",
            where=writer.where,
        )
    stream = writer.tables.stream(op.src, "load", writer.level(op.src.loop), writer.where)
    pointer = pointer_of(writer, op.src)
    groups = _vectors(writer.tile_registers(op.dst), _width(layout, dtype_bytes(layout.tile.dtype)))
    loads: list[int] = []
    for index, group in enumerate(groups):
        writer.emit(
            "LDG",
            group,
            (Operand(pointer, 0, 2),),
            stream=piece(stream.name, op.src, layout, index, len(groups)),
            bytes=_access_bytes(layout, group),
        )
        loads.append(len(writer.code) - 1)
    memory = writer.global_access(op.src)
    sizes = [group.count for group in groups]
    if layout.kind == "lane":  # what uses columns of a row waits only for the loads of these columns
        _lane_effects(writer, loads, sizes, op.dst, memory)
    elif layout.kind == "rows" and layout.cols > 1:
        _block_effects(writer, loads, sizes, op.dst, memory)
    elif layout.kind == "columns":
        _vector_effects(writer, loads, sizes, op.dst, memory)
    else:
        _band_effects(writer, loads, "copy_async", op.dst, 0, memory, "read")


def piece(name: str, ref: GlobalRef, layout: WarpLayout, index: int, count: int) -> StreamRef:
    """The piece of a box that a warp's access `index` of `count` moves; pieces are numbered row by row."""
    warps = 1 if layout.tile.rows == 1 else layout.warps
    part, stride = index * warps, 1
    if layout.kind == "rows":
        of_row = count // layout.bands
        part, stride = index // of_row * warps * of_row + index % of_row, of_row
    return StreamRef(
        name=name,
        offset=ref.ahead,
        part=part,
        parts=count * warps,
        part_by_rank=warps > 1,
        rank_stride=stride,
    )


def _check_part(writer: RoleWriter, name: str, first_col: int, rows: int, cols: int) -> None:
    tile = writer.layout(name).tile
    if rows != tile.rows or first_col + cols > tile.cols:
        raise UserError(
            f"a box of {rows} x {cols} from column {first_col} is not part of register tile {name} "
            f"({tile.rows} x {tile.cols})",
            where=writer.where,
        )


def _access_bytes(layout: WarpLayout, group: Operand) -> int:
    """Bytes that a warp's access moves: a column has one element for the lanes that share a row.

    Of a vector beside fragments the lanes of one row of an atom have all; the others have copies.
    """
    if layout.kind == "columns":
        return ATOM_COLS // ATOM_LANE_COLS * REGISTER_BYTES * group.count
    lanes = LANES if layout.cols > 1 else LANES // sharing_lanes(layout)
    return lanes * REGISTER_BYTES * group.count


def _width(layout: WarpLayout, element_bytes: int) -> int:
    """Registers of one access of a lane: four of its row, or the two neighbouring columns of a fragment."""
    if layout.cols == 1:
        return 1
    return (
        VECTOR_REGISTERS
        if layout.kind in ("lane", "rows", "vector", "second") or layout.passing
        else max(1, 2 * element_bytes // REGISTER_BYTES)
    )


def _converted(
    writer: RoleWriter, registers: list[Operand], source_dtype: str, target_dtype: str, width: int
) -> Iterator[Operand]:
    """Groups of `width` registers to store; the next group is converted before the caller stores this one."""
    source_bytes, target_bytes = dtype_bytes(source_dtype), dtype_bytes(target_dtype)
    if target_bytes > source_bytes:
        raise UserError("a store cannot widen elements; cast the tile first", where=writer.where)
    if source_dtype == target_dtype:
        yield from _vectors(registers, width)
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


def _vectors(registers: list[Operand], width: int) -> list[Operand]:
    """Neighbouring registers of one value, up to `width` together."""
    groups: list[Operand] = []
    for register in registers:
        last = groups[-1] if groups else None
        joins = last and last.value == register.value and last.offset + last.count == register.offset
        if last and joins and last.count < width:
            groups[-1] = replace(last, count=last.count + 1)
        else:
            groups.append(register)
    return groups


def shared_base(writer: RoleWriter, ref: SharedRef) -> Operand:
    """This lane's address in the current stage of a shared tile."""
    base = writer.kept(f"{ref.tile}.lane_address", file="vector", op="IMAD")
    return writer.scalar("IMAD", base, writer.stage(ref.ring), name="stage_address") if ref.ring else base


def pointer_of(writer: RoleWriter, ref: GlobalRef) -> Value:
    """A 64-bit address of this lane: row and column of the box times the pitch, plus the tensor's base."""
    row = writer.scalar("IMAD", name="row")
    pointer = writer.value("pointer", 2)
    writer.emit("IMAD", Operand(pointer, 0), (row,))
    writer.emit("IMAD", Operand(pointer, 1), (row,))
    return pointer


def advance_pointer(writer: RoleWriter, pointer: Value) -> Value:
    following = writer.value("pointer", 2)
    writer.emit("IADD3", Operand(following, 0), (Operand(pointer, 0),))
    writer.emit("IMAD", Operand(following, 1), (Operand(pointer, 1),))
    return following


def _conflict_ways(row_bytes: int, lane_rows: bool) -> int:
    """Bank conflicts of 8 rows (fragments) or 32 rows (a row a lane) at plain row pitch."""
    rows = LANES if lane_rows else 8
    words = row_bytes // REGISTER_BYTES
    distinct = len({(row * words) % SHARED_BANKS for row in range(rows)})
    return max(1, min(rows // max(1, distinct), 8))


def _lane_effects(writer: RoleWriter, positions: list[int], sizes: list[int], tile: str, memory: Access) -> None:
    """One effect a load of a row a lane: load i brings `sizes[i]` registers, band after band."""
    layout = writer.layout(tile)
    elements = REGISTER_BYTES // dtype_bytes(layout.tile.dtype)
    register = 0
    for position, size in zip(positions, sizes, strict=True):
        band, first = divmod(register, layout.band_registers)
        place = layout.band(band, writer.tile_object(tile))
        col, cols = first * elements, size * elements
        load_effect(writer, position, memory, replace(place, col=col, cols=cols))
        register += size


def load_effect(writer: RoleWriter, position: int, memory: Access, part: Access) -> None:
    """A load at `position` of the code brings a part of a register tile from the same part of a box."""
    box = replace(
        memory,
        row=memory.row + part.row,
        rows=part.rows,
        rank_row=part.rank_row,
        col=memory.col + part.col,
        cols=part.cols,
    )
    effect = writer.effect("copy_async", [box], [part])
    draft = writer.code[position]
    writer.code[position] = replace(draft, row=replace(draft.row, effect=effect))


def _block_effects(writer: RoleWriter, positions: list[int], sizes: list[int], tile: str, memory: Access) -> None:
    """One effect for every block of columns, on the last of its loads (load i brings `sizes[i]` registers)."""
    layout = writer.layout(tile)
    block_cols = min(layout.block_cols, layout.cols)  # a column is a block by itself
    block = layout.band_registers * block_cols // layout.cols
    loaded = 0
    for position, size in zip(positions, sizes, strict=True):
        loaded += size
        if loaded % block:
            continue
        band, last = divmod(loaded - block, layout.band_registers)
        place = layout.band(band, writer.tile_object(tile))
        col = last // block * block_cols
        load_effect(writer, position, memory, replace(place, col=col, cols=block_cols))


def _vector_effects(writer: RoleWriter, positions: list[int], sizes: list[int], tile: str, memory: Access) -> None:
    """One effect a load of a vector beside fragments: a lane has two of the eight columns of an atom."""
    place, col = writer.tile_band(tile, 0), 0
    for position, size in zip(positions, sizes, strict=True):
        cols = size // ATOM_LANE_COLS * ATOM_COLS
        load_effect(writer, position, memory, replace(place, col=col, cols=cols))
        col += cols


def _turned_effects(
    writer: RoleWriter, positions: list[int], kind: str, tile: str, first_col: int, memory: Access
) -> None:
    """One effect a band of a transposed store, whose rows are columns of the box."""
    layout = writer.layout(tile)
    if layout.tile.warp_grid[1] > 1:
        raise UserError(
            f"a transposed store takes tiles whose warps lie along rows; {tile} has not", where=writer.where
        )
    for band in range(layout.bands):
        register = replace(writer.tile_band(tile, band), col=first_col, cols=memory.rows)
        box = replace(
            memory,
            col=memory.col + register.row,
            cols=register.rows,
            rank_col=register.rank_row,
            rank_cols=layout.warps,
        )
        position = positions[(band + 1) * len(positions) // layout.bands - 1]
        effect = writer.effect(kind, [register], [box], transposed=1)
        draft = writer.code[position]
        writer.code[position] = replace(draft, row=replace(draft.row, effect=effect))


def _band_effects(
    writer: RoleWriter, positions: list[int], kind: str, tile: str, first_col: int, memory: Access, direction: str
) -> None:
    """One effect a band, on the last of the band's memory instructions (whose places in the code are `positions`)."""
    layout = writer.layout(tile)
    for band in range(layout.bands):
        register = writer.tile_band(tile, band)
        cols = register.cols if memory.cols == layout.tile.cols else memory.cols
        register = replace(register, col=register.col + first_col, cols=cols)
        box = replace(
            memory,
            row=memory.row + register.row,
            rows=register.rows,
            cols=cols,
            rank_row=register.rank_row,
            rank_col=register.rank_col,
            rank_cols=register.rank_cols,
        )
        reads, writes = ([box], [register]) if direction == "read" else ([register], [box])
        position = positions[(band + 1) * len(positions) // layout.bands - 1]
        draft = writer.code[position]
        effect = writer.effect(kind, reads, writes)
        writer.code[position] = replace(draft, row=replace(draft.row, effect=effect))
