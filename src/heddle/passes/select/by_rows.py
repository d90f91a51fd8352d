"""Matrix-vector work on whole rows of a warp: copies through registers, look-ups of entries, dot products.

A lane has eight neighbouring columns of each 256 of a row, which are 16 bytes: an entry of a codebook. Which columns
are a lane's is free as long as all operands agree, so its codes are counted as if they lay side by side in memory.
"""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import CODE_WEIGHTS, CopyThrough, Dot, GlobalRef, LookUpRows
from heddle.ir.warp import StreamRef
from heddle.passes.draft import Operand
from heddle.passes.select.accesses import LANES, REGISTER_BYTES
from heddle.passes.select.elementwise import part_registers
from heddle.passes.select.look_up import entries_of, load_entry
from heddle.passes.select.sm_80 import copied_piece, next_pointer
from heddle.passes.select.writer import RoleWriter

ENTRY_REGISTERS = 4
LANE_BYTES = 16
"""Most that a lane loads or stores at a time."""


def lower_copy_through(writer: RoleWriter, op: CopyThrough) -> None:
    """LDG of up to 16 bytes a lane, and an STS for each copy; lanes take turns, so that no banks conflict."""
    tile, warps = writer.shared_tile(op.dst.tile), writer.role.warps
    size = dtype_bytes(tile.dtype)
    total = op.dst.rows * op.dst.cols * size
    lane_bytes = min(LANE_BYTES, total // (LANES * warps))
    access = LANES * lane_bytes
    if lane_bytes < REGISTER_BYTES or total % (access * warps) or lane_bytes & (lane_bytes - 1):
        raise UserError(
            f"a copy of {op.dst.rows} x {op.dst.cols} {tile.dtype} ({total} bytes) does not divide into 4, 8 or 16 "
            f"bytes for each lane of {warps} warps",
            where=writer.where,
        )
    stream = writer.tables.stream(op.src, "load", writer.level(op.src.loop), writer.where)
    pointer = writer.kept(f"{op.src.tensor}.pointer", 2, "vector", "IMAD")
    shared = writer.kept(f"{op.dst.tile}.copy_address", file="vector", op="IMAD")
    count, here = total // access, pointer
    for index in range(count // warps):
        here = here if index == 0 else next_pointer(writer, here)
        part = StreamRef(name=stream.name, offset=op.src.ahead, part=index * warps, parts=count, part_by_rank=warps > 1)
        loaded = writer.value("copied", lane_bytes // REGISTER_BYTES)
        writer.emit("LDG", loaded, (here,), stream=part, bytes=access)
        for copy in range(op.copies):
            box = replace(op.dst, col=op.dst.col + copy * op.dst.cols)
            source, target = (
                copied_piece(each, access // size, index, warps)
                for each in (writer.global_access(op.src), writer.shared_access(box))
            )
            address = writer.scalar("LOP3", shared, name="copy")
            effect = writer.effect("copy", [source], [target])
            whole = Operand(loaded, 0, loaded.count)
            writer.emit("STS", src=(address, whole), bytes=access, effect=effect)


def lower_look_up_rows(writer: RoleWriter, op: LookUpRows) -> None:
    """One load for each eight columns of a lane, or one of each codebook and four sums; an effect for each."""
    _check_band(writer, op.dst)
    codes = writer.tile_registers(op.src)
    for number, target in enumerate(writer.tile_values(op.dst)):
        code = codes[number // 2]
        if isinstance(op.codebook, GlobalRef):
            load_entry(writer, op.codebook, code, number, target)
            book = writer.global_access(op.codebook)
        else:
            loaded = entries_of(writer, op.codebook, op.books, code)
            for index in range(ENTRY_REGISTERS):
                parts = [Operand(entry, index) for entry in loaded]
                writer.emit("HADD2" if len(parts) > 1 else "MOV", Operand(target, index), parts)
            book = writer.shared_access(op.codebook)
        width = writer.layout(op.dst).block_cols
        written = replace(writer.tile_band(op.dst, 0), col=number * width, cols=width)
        numbers = replace(writer.tile_band(op.src, 0), col=number * width // CODE_WEIGHTS, cols=width // CODE_WEIGHTS)
        reads = [numbers, replace(book, cols=CODE_WEIGHTS)]
        writer.attach_effect(writer.effect("look_up_rows", reads, [written], books=op.books))


def lower_dot(writer: RoleWriter, op: Dot) -> None:
    """For eight columns of a lane a product and three fused ones of pairs, then both halves are widened and added."""
    _check_band(writer, op.a)
    width = writer.layout(op.b).tile.cols
    pairs = list(
        zip(part_registers(writer, op.a, op.a_col, width), part_registers(writer, op.b, 0, width), strict=True)
    )
    (total,) = writer.tile_registers(op.dst)
    for first in range(0, len(pairs), ENTRY_REGISTERS):
        chain = writer.scalar("HFMA2", *pairs[first], name="chain")
        for pair in pairs[first + 1 : first + ENTRY_REGISTERS]:
            chain = writer.scalar("HFMA2", *pair, chain, name="chain")
        halves = [writer.scalar("HADD2", chain, name="half") for _ in range(2)]
        both = writer.scalar("FADD", *halves, name="both")
        writer.emit("FADD", total, (total, both))
    product = replace(writer.tile_band(op.a, 0), col=op.a_col, cols=width)
    writer.attach_effect(writer.effect("dot", [product, writer.tile_band(op.b, 0)], [writer.tile_band(op.dst, 0)]))


def _check_band(writer: RoleWriter, name: str) -> None:
    """Each warp has one row, whose columns lie over all its lanes."""
    layout = writer.layout(name)
    if layout.kind != "rows" or layout.bands != 1 or layout.rows != 1:
        raise UserError(
            f"{name} of {layout.tile.rows} x {layout.tile.cols} does not give each of {layout.warps} warps a row",
            where=writer.where,
            hint='declare it with spread="rows" and a row for each warp',
        )
