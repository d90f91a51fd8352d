"""Blackwell in mode fiber: weft-level products with accumulators in tensor memory, and moves of tensor memory.

A weft multiplies 32 rows, one a lane; four in lockstep are the 128 rows of a tcgen05 instruction. A comes from vector
registers, where a lane holds its row as tensor memory is read: one k-step of 16-bit elements is eight registers. So
what a weft computes from a row of tensor memory is an operand without any exchange between lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import Fill, LoadShared, LoadTensorMemory, Mma, SetBusyBit, SharedRef, StoreTensorMemory, TmemRef
from heddle.ir.warp import Access, Instruction
from heddle.passes.draft import BUSY_BIT, ZERO, Draft, Operand, whole
from heddle.passes.layout_to_warps import LANES, REGISTER_BYTES
from heddle.passes.select import accesses, elementwise, fiber
from heddle.passes.select.elementwise import part_registers
from heddle.passes.select.sm_90 import STEP_BYTES, b_access
from heddle.passes.select.sm_100 import MAX_COLS
from heddle.passes.select.tensor_groups import tensor_groups
from heddle.passes.select.tensor_memory import LOAD_COLUMNS, STORE_COLUMNS, pieces
from heddle.passes.select.writer import RoleWriter

GROUP_WEFTS = 4  # wefts of a lockstep group, one a subpartition
WEFT_ROWS = 32  # of a weft's instruction: the lanes of a subpartition's tensor memory
FRAGMENT_REGISTERS = STEP_BYTES // REGISTER_BYTES  # of an A operand of one k-step
NOTHING = whole(ZERO)


def lower_mma(writer: RoleWriter, op: Mma) -> None:
    """One WMMA.TM a k-step; the first of a product that overwrites reads no accumulator."""
    k = _check(writer, op)
    assert isinstance(op.acc, TmemRef)
    dtype, steps = writer.shared_tile(op.b.tile).dtype, op.depth // k
    for step in range(steps):
        overwrites = op.accumulate is False and step == 0
        writer.emit(
            "WMMA.TM",
            tensor_groups(writer, op.acc, whole=True),
            (fragment(writer, op, step), NOTHING, *([NOTHING] if overwrites else [])),
            accumulates=not overwrites,
            shape=(WEFT_ROWS, op.columns, k),
            form="rs" if isinstance(op.a, str) else "ss",
            dtype=dtype,
            group=True,
            effect=_effect(writer, op, step, k),
        )
    writer.matrix_reads.append(fragment(writer, op, steps - 1))  # the unit reads in order: the last one


def _check(writer: RoleWriter, op: Mma) -> int:
    if not isinstance(op.acc, TmemRef) or isinstance(op.a, TmemRef):
        raise UserError(
            "a weft-level product of sm_100 accumulates in tensor memory and takes its first operand from registers or "
            "shared memory",
            where=writer.where,
        )
    if writer.role.warps != GROUP_WEFTS or writer.first_warp % GROUP_WEFTS:
        raise UserError(
            f"role {writer.role.name} multiplies with {writer.role.warps} wefts from {writer.first_warp} on; "
            f"a lockstep group is {GROUP_WEFTS} wefts from a multiple of {GROUP_WEFTS} on",
            where=writer.where,
        )
    k = STEP_BYTES // dtype_bytes(writer.shared_tile(op.b.tile).dtype)
    rows = _shared_rows(op, op.a) if isinstance(op.a, SharedRef) else writer.layout(op.a).tile.rows
    if rows != WEFT_ROWS * GROUP_WEFTS or op.depth % k or op.columns % 8 or op.columns > MAX_COLS:
        raise UserError(
            f"a product of {rows} rows over {op.depth} with {op.columns} columns; needs {WEFT_ROWS * GROUP_WEFTS} rows,"
            f" a multiple of {k}, and 8 to {MAX_COLS} columns",
            where=writer.where,
        )
    if op.accumulate == "first_iteration":
        raise UserError(
            "a product that overwrites in the first iteration only: its accumulator would have to be there already",
            where=writer.where,
            hint="write the first product in front of the loop, with accumulate=False",
        )
    if op.plus is not None or op.ctas > 1:
        raise UserError("a weft-level product in tensor memory has no `plus` and no pair of CTAs", where=writer.where)
    return k


def _shared_rows(op: Mma, a: SharedRef) -> int:
    return a.cols if op.a_transposed else a.rows


def fragment(writer: RoleWriter, op: Mma, step: int) -> Operand:
    """The registers of one k-step of A; RZ where it is in shared memory."""
    if not isinstance(op.a, str):
        return NOTHING
    return Operand(writer.tile_values(op.a)[0], step * FRAGMENT_REGISTERS, FRAGMENT_REGISTERS)


def _effect(writer: RoleWriter, op: Mma, step: int, k: int) -> int:
    mode: dict[str, float | int | str] = {"accumulate": 1}
    if step == 0 and op.accumulate is False:
        mode = {"accumulate": 0}
    if op.b_transposed:
        mode["transposed"] = 1
    if op.a_transposed:
        mode["a_transposed"] = 1
    assert isinstance(op.acc, TmemRef)
    reads = [_a_access(writer, op, step, k), b_access(writer, op, step, k)]
    written = replace(writer.tmem_access(op.acc), rows=WEFT_ROWS, rank_row=WEFT_ROWS)
    return writer.effect("mma", reads, [written], **mode)


def _a_access(writer: RoleWriter, op: Mma, step: int, k: int) -> Access:
    if not isinstance(op.a, SharedRef):
        assert isinstance(op.a, str)
        return replace(writer.tile_band(op.a, 0), col=step * k, cols=k)
    box = writer.shared_access(op.a)
    if op.a_transposed:  # through the descriptor: rows of the box lie along the sum
        row = box.row + step * k
        return replace(box, row=row, rows=k, cols=WEFT_ROWS, rank_col=WEFT_ROWS, rank_cols=GROUP_WEFTS)
    return replace(box, col=box.col + step * k, cols=k, rows=WEFT_ROWS, rank_row=WEFT_ROWS)


def lower_load_tensor_memory(writer: RoleWriter, op: LoadTensorMemory) -> None:
    """LDTM of up to 32 columns each; the registers' own bits and counters say when they are there."""
    registers = writer.tile_registers(op.dst)
    for count, part, memory, target in pieces(writer, registers, op.src, op.dst, 0, LOAD_COLUMNS):
        groups = tensor_groups(writer, replace(op.src, col=memory.col, cols=memory.cols))
        effect = writer.effect("copy", [memory], [target])
        writer.emit("LDTM", part, (groups,), bytes=LANES * REGISTER_BYTES * count, effect=effect)
        writer.tensor_memory_loads.append(part)


def lower_store_tensor_memory(writer: RoleWriter, op: StoreTensorMemory) -> None:
    """STTM of up to 16 columns each; bits of the columns say when they are there, so nothing waits."""
    registers = part_registers(writer, op.src, op.src_col, op.dst.cols)
    for count, part, memory, source in pieces(writer, registers, op.dst, op.src, op.src_col, STORE_COLUMNS):
        groups = tensor_groups(writer, replace(op.dst, col=memory.col, cols=memory.cols))
        effect = writer.effect("copy", [source], [memory])
        writer.emit("STTM", groups, (part,), bytes=LANES * REGISTER_BYTES * count, effect=effect)


def lower_load_shared(writer: RoleWriter, op: LoadShared) -> None:
    """LDS of 16 bytes of its row a lane, each with its own effect: a product may begin when its first step is there."""
    tile, layout = writer.shared_tile(op.src.tile), writer.layout(op.dst)
    if tile.dtype != layout.tile.dtype:
        raise UserError(
            f"shared tile {tile.name} is {tile.dtype}, register tile {op.dst} is {layout.tile.dtype}",
            where=writer.where,
        )
    base = accesses.shared_base(writer, op.src)
    if op.transposed:
        _load_turned(writer, op, base)
        return
    lanes = 1 if layout.kind == "vector" else LANES  # all lanes read the same words: one broadcast
    for count, part, memory, target in _shared_pieces(writer, op):
        effect = writer.effect("copy", [memory], [target])
        writer.emit("LDS", part, (base,), bytes=lanes * REGISTER_BYTES * count, effect=effect)
    writer.shared_reads += [whole(value) for value in writer.tile_values(op.dst)]


def _load_turned(writer: RoleWriter, op: LoadShared, base: Operand) -> None:
    """A lane's column of the box: two loads of an element, whose 32 neighbours other lanes have, and a permute."""
    layout, box = writer.layout(op.dst), writer.shared_access(op.src)
    elements = REGISTER_BYTES // dtype_bytes(layout.tile.dtype)
    for band, value in enumerate(writer.tile_values(op.dst)):
        place = layout.band(band, writer.tile_object(op.dst))
        for register in range(value.count):
            halves = [Operand(writer.value("element")) for _ in range(elements)]
            for half in halves:
                writer.emit("LDS", half, (base,), bytes=LANES * REGISTER_BYTES // elements)
            part = replace(place, col=register * elements, cols=elements)
            read = replace(
                box,
                row=box.row + part.col,
                rows=elements,
                col=box.col + place.row,
                cols=place.rows,
                rank_col=place.rank_row,
                rank_cols=layout.warps,
            )
            effect = writer.effect("copy", [read], [part], transposed=1)
            writer.emit("PRMT", Operand(value, register), halves, effect=effect)
    writer.shared_reads += [whole(value) for value in writer.tile_values(op.dst)]


def _shared_pieces(writer: RoleWriter, op: LoadShared) -> Iterator[tuple[int, Operand, Access, Access]]:
    """Cut a lane's rows into accesses of four registers: registers, operand, and what is read and written."""
    layout, box = writer.layout(op.dst), writer.shared_access(op.src)
    elements = REGISTER_BYTES // dtype_bytes(layout.tile.dtype)
    for band, value in enumerate(writer.tile_values(op.dst)):
        place = layout.band(band, writer.tile_object(op.dst))
        for first in range(0, value.count, accesses.VECTOR_REGISTERS):
            count = min(accesses.VECTOR_REGISTERS, value.count - first)
            part = replace(place, col=first * elements, cols=count * elements)
            row = box.row + place.row
            read = replace(
                box, row=row, rows=place.rows, rank_row=place.rank_row, col=box.col + part.col, cols=part.cols
            )
            yield count, Operand(value, first, count), read, part


def lower_fill(writer: RoleWriter, op: Fill) -> None:
    """One move a register; a token comes after what this role has read from tensor memory."""
    start = len(writer.code)
    elementwise.lower_fill(writer, op)
    if any(tile.name == op.dst for tile in writer.program.pool):
        after = tuple(writer.tensor_memory_loads)
        writer.code[start:] = [replace(draft, after=after) for draft in writer.code[start:]]
        writer.tensor_memory_loads = []


def lower_set_busy_bit(writer: RoleWriter, op: SetBusyBit) -> None:
    """A mark on the tensor's registers, or on the columns of a box."""
    if isinstance(op.tile, str):
        fiber.lower_set_busy_bit(writer, op)
        return
    source = writer.tables.source(writer.where, writer.operation)
    row = Instruction(op=BUSY_BIT, bit=op.bit, source=source)
    writer.code.append(Draft(row=row, src=(tensor_groups(writer, op.tile, whole=True),)))
