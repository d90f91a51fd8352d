"""Weights from codebooks: an entry of 16 bytes is eight weights of a column, four registers of second operands.

The order of what is summed is free as long as both operands have the same. So in 32 elements of k lane t of four has
elements 8 t to 8 t + 7: the entry of one code, which serves two steps of 16.

A codebook in global memory is read by LDG.128, each lane at its own address: every lane moves a sector of 32 bytes for
16 of its own. One in shared memory lies there in eight copies side by side: the lanes of a quarter of a warp, which
are served together, each read their own copy, in banks of their own whatever the codes are.
"""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.tile import CODE_WEIGHTS, GlobalRef, LookUp
from heddle.ir.warp import Access, StreamRef
from heddle.passes.draft import Operand, Value, whole
from heddle.passes.select.writer import RoleWriter

STEP_ROWS = 16
"""Of each of the two steps of mma.sync that an entry serves."""
ENTRY_REGISTERS = 4
ENTRY_BYTES = 16
LANES = 32
SECTOR_BYTES = 32
"""Least that a lane's access moves from L2."""
PARTS = 32
"""Of the codebook, over which the accesses of a program are dealt."""
PART_STEP = 11
"""Between accesses that follow each other: odd, so that all parts have their turn."""


def lower_look_up(writer: RoleWriter, op: LookUp) -> None:
    """All loads, then sums and scales entry by entry; one effect for all."""
    target, source = writer.layout(op.dst), writer.layout(op.src)
    if target.kind != "second" or target.rows != STEP_ROWS:
        raise UserError(
            f"{op.dst} of {target.tile.rows} rows is no second operand of one step of {STEP_ROWS}", where=writer.where
        )
    codes, scales = writer.tile_registers(op.src), writer.tile_registers(op.scale)
    pairs = list(zip(writer.tile_values(op.dst), writer.tile_values(op.upper), strict=True))
    first = 2 * len(codes) * op.src_row // source.rows
    entries = [_entries(writer, op, codes, first + number) for number in range(len(pairs))]
    for number, (loaded, pair) in enumerate(zip(entries, pairs, strict=True)):
        _scale(writer, loaded, [Operand(value, i) for value in pair for i in range(2)], scales[number // 2])
    reads = [writer.tile_band(name, 0) for name in (op.src, op.scale)]
    reads[0] = replace(reads[0], row=op.src_row, rows=2 * STEP_ROWS // CODE_WEIGHTS)
    reads.append(replace(_book(writer, op), cols=CODE_WEIGHTS))
    writes = [writer.tile_band(name, 0) for name in (op.dst, op.upper)]
    writer.attach_effect(writer.effect("look_up", reads, writes, books=op.books))


def _book(writer: RoleWriter, op: LookUp) -> Access:
    if isinstance(op.codebook, GlobalRef):
        return writer.global_access(op.codebook)
    return writer.shared_access(op.codebook)


def _entries(writer: RoleWriter, op: LookUp, codes: list[Operand], number: int) -> list[Value]:
    """Load the entries of one column's codes, which are 16 bits of a register."""
    word, upper = codes[number // 2], number % 2
    if isinstance(op.codebook, GlobalRef):
        return [_from_global(writer, op.codebook, word, upper, number)]
    lane = writer.kept(f"{op.codebook.tile}.lane_address", file="vector", op="LEA")
    loaded = []
    for _ in range(op.books):
        code = writer.scalar("PRMT", word, name="code")  # a byte
        address = writer.scalar("LEA", code, lane, name="entry")
        entry = writer.value("entry", ENTRY_REGISTERS)
        writer.emit("LDS", entry, (address,), bytes=LANES * ENTRY_BYTES)
        loaded.append(entry)
    return loaded


def _from_global(writer: RoleWriter, ref: GlobalRef, word: Operand, upper: int, number: int) -> Value:
    base = writer.kept(f"{ref.tensor}.pointer", 2, "vector", "IMAD")
    code = writer.scalar("SHF" if upper else "LOP3", word, name="code")
    pointer = writer.value("entry_pointer", 2)
    writer.emit("IMAD", whole(pointer), (code, base))
    entry = writer.value("entry", ENTRY_REGISTERS)
    stream = writer.tables.stream(ref, "load", 0, writer.where)
    place = StreamRef(name=stream.name, part=number * PART_STEP % PARTS, parts=PARTS, part_by_rank=True)
    writer.emit("LDG", entry, (whole(pointer),), stream=place, bytes=LANES * SECTOR_BYTES)
    return entry


def _scale(writer: RoleWriter, entries: list[Value], targets: list[Operand], scale: Operand) -> None:
    """Add the entries of all codebooks, and multiply by the scale of the column."""
    for index, dst in enumerate(targets):
        total = Operand(entries[0], index)
        for other in entries[1:]:
            total = writer.scalar("HADD2", total, Operand(other, index), name="sum")
        writer.emit("HMUL2", dst, (total, scale))
