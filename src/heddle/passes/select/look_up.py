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
from heddle.ir.tile import CODE_WEIGHTS, GlobalRef, LookUp, SharedRef
from heddle.ir.warp import Access, StreamRef
from heddle.passes.draft import Operand, Value, whole
from heddle.passes.select.dequantize import check_by_rows, lies_as, of_steps
from heddle.passes.select.fiber_hmma import ATOM, operand_atom
from heddle.passes.select.writer import RoleWriter

STEP_ROWS = 16
"""Of each of the two steps of mma.sync that an entry serves."""
ENTRY_REGISTERS = 4
ENTRY_BYTES = 16
LANES = 32
SECTOR_BYTES = 32
"""Least that a lane's access moves from L2."""
TOGETHER = 4
"""Entries on their way at a time, in mode fiber: sixteen registers, or twice as many where two are summed."""
PARTS = 32
"""Of the codebook, over which the accesses of a program are dealt."""
PART_STEP = 11
"""Between accesses that follow each other: odd, so that all parts have their turn."""


def lower_look_up(writer: RoleWriter, op: LookUp) -> None:
    """All loads, then sums and scales entry by entry; one effect for all."""
    target, source = writer.layout(op.dst), writer.layout(op.src)
    if target.kind != "second" or target.rows != STEP_ROWS or op.upper is None:
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


def lower_into_pool(writer: RoleWriter, op: LookUp) -> None:
    """Mode fiber on sm_80: each weft looks up its 32 rows of k, and as many again, for all columns of the product.

    Or all rows of k, for the columns that it multiplies.

    The last instruction of an entry's two steps, which carries their effect, writes the one that products read first.
    """
    target, source = writer.layout(op.dst), writer.layout(op.src)
    if not lies_as(target, source) or target.cols % (2 * STEP_ROWS):
        raise UserError(
            f"{op.dst} is no pool tensor that is divided as {op.src} is, along what is summed over in steps of "
            f"{2 * STEP_ROWS}, or into the columns that each weft multiplies",
            where=writer.where,
        )
    codes, scales = writer.tile_registers(op.src), writer.tile_registers(op.scale)
    places = [
        (pair, column) for pair in range(target.cols // (2 * STEP_ROWS)) for column in range(target.rows // (ATOM // 2))
    ]
    for first in range(0, len(places), TOGETHER):
        some = list(enumerate(places))[first : first + TOGETHER]
        entries = [_entries(writer, op, codes, number) for number, _ in some]
        for loaded, (_, (pair, column)) in zip(entries, some, strict=True):
            steps = [operand_atom(writer, op.dst, column // 2, 2 * pair + step) for step in range(2)]
            registers = [replace(s, offset=s.offset + column % 2 * 2 + i, count=1) for s in steps for i in range(2)]
            _scale(writer, loaded, registers, scales[column // 2], order=(2, 3, 0, 1))
            if (pair, column + 1) not in places:
                reads, written = of_steps(writer, op, pair * 2 * STEP_ROWS, 2 * STEP_ROWS)
                reads.append(replace(_book(writer, op), cols=CODE_WEIGHTS))
                writer.attach_effect(writer.effect("look_up", reads, [written], books=op.books, transposed=1))


def lower_by_rows(writer: RoleWriter, op: LookUp) -> None:
    """sm_90, sm_100: weights as rows of a first operand.

    Where a lane has two rows (wgmma), an entry is its part of one of them in two steps of 16, and the last instruction
    of both, which carries their effect, writes the first. Where a lane is a row, two entries are its part of a step.
    """
    target, source = check_by_rows(writer, op.dst, op.src)
    codes, (scale, *_) = writer.tile_registers(op.src), writer.tile_registers(op.scale)
    (value,) = writer.tile_values(op.dst)
    first = 2 * len(codes) * op.src_row // source.rows
    rows = STEP_ROWS if target.kind == "lane" else 2 * STEP_ROWS  # of k, that two entries of a lane serve
    together = TOGETHER
    if isinstance(op.codebook, GlobalRef):  # the way to L2 is longer; where a lane is a row, it has twice as many
        together *= 4 if target.kind == "lane" else 2
    count = 2 * target.cols // rows
    for begin in range(0, count, together):
        some = range(begin, min(begin + together, count))
        entries = [_entries(writer, op, codes, first + number) for number in some]
        for loaded, number in zip(entries, some, strict=True):
            base = 8 * (number // 2)
            if target.kind == "lane":
                registers = [Operand(value, base + 4 * (number % 2) + i) for i in range(ENTRY_REGISTERS)]
            else:
                registers = [Operand(value, base + 4 * step + number % 2 + 2 * i) for step in (0, 1) for i in (0, 1)]
            _scale(writer, loaded, registers, scale, order=(2, 3, 0, 1))
            if number % 2:
                _effect_by_rows(writer, op, number // 2 * rows, rows)


def _effect_by_rows(writer: RoleWriter, op: LookUp, col: int, rows: int) -> None:
    """The effect of two entries of each lane."""
    reads = [writer.tile_band(name, 0) for name in (op.src, op.scale)]
    reads[0] = replace(reads[0], row=op.src_row + col // CODE_WEIGHTS, rows=rows // CODE_WEIGHTS)
    reads.append(replace(_book(writer, op), cols=CODE_WEIGHTS))
    written = replace(writer.tile_band(op.dst, 0), col=col, cols=rows)
    params = {"books": op.books, "transposed": 1}
    writer.attach_effect(writer.effect("look_up", reads, [written], **params))


def _book(writer: RoleWriter, op: LookUp) -> Access:
    if isinstance(op.codebook, GlobalRef):
        return writer.global_access(op.codebook)
    return writer.shared_access(op.codebook)


def _entries(writer: RoleWriter, op: LookUp, codes: list[Operand], number: int) -> list[Value]:
    """Load the entries of one column's codes, which are 16 bits of a register."""
    word = codes[number // 2]
    if isinstance(op.codebook, GlobalRef):
        entry = writer.value("entry", ENTRY_REGISTERS)
        load_entry(writer, op.codebook, word, number, entry)
        return [entry]
    return entries_of(writer, op.codebook, op.books, word)


def entries_of(writer: RoleWriter, ref: SharedRef, books: int, word: Operand) -> list[Value]:
    """Load an entry of each of `books` codebooks in shared memory, by a code of 16 bits of a register."""
    lane = writer.kept(f"{ref.tile}.lane_address", file="vector", op="LEA")
    loaded = []
    for _ in range(books):
        code = writer.scalar("PRMT", word, name="code")  # a byte
        address = writer.scalar("LEA", code, lane, name="entry")
        entry = writer.value("entry", ENTRY_REGISTERS)
        writer.emit("LDS", entry, (address,), bytes=LANES * ENTRY_BYTES)
        loaded.append(entry)
    return loaded


def load_entry(writer: RoleWriter, ref: GlobalRef, word: Operand, number: int, entry: Value) -> None:
    """Load an entry of a codebook in global memory, by the code in one half of a register; `number`: of codes."""
    base = writer.kept(f"{ref.tensor}.pointer", 2, "vector", "IMAD")
    code = writer.scalar("SHF" if number % 2 else "LOP3", word, name="code")
    pointer = writer.value("entry_pointer", 2)
    writer.emit("IMAD", whole(pointer), (code, base))
    stream = writer.tables.stream(ref, "load", 0, writer.where)
    place = StreamRef(name=stream.name, part=number * PART_STEP % PARTS, parts=PARTS, part_by_rank=True)
    writer.emit("LDG", entry, (whole(pointer),), stream=place, bytes=LANES * SECTOR_BYTES)


def _scale(
    writer: RoleWriter,
    entries: list[Value],
    targets: list[Operand],
    scale: Operand,
    order: tuple[int, ...] = (0, 1, 2, 3),
) -> None:
    """Add the entries of all codebooks, and multiply by the scale of the column; `order`: of the registers."""
    for index in order:
        dst = targets[index]
        total = Operand(entries[0], index)
        for other in entries[1:]:
            total = writer.scalar("HADD2", total, Operand(other, index), name="sum")
        writer.emit("HMUL2", dst, (total, scale))
