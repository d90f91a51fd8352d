"""Hopper: 8-bit tiles transposed inside shared memory, because wgmma takes such operands along the sum only."""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.tile import SharedRef, TransposeShared
from heddle.passes.draft import Operand, Value, whole
from heddle.passes.select.accesses import shared_base
from heddle.passes.select.writer import RoleWriter

MATRIX_BYTES = 512  # LDSM.x4 and STSM.x4: four 8 x 8 matrices of 16 bit, 16 bytes a lane
MATRIX_REGISTERS = 4
PIECE_ROWS, PIECE_COLS = 32, 16  # of the source, in one LDSM.x4.trans of 8-bit elements, which it moves in pairs
TOGETHER = 2  # pieces under way at a time, so that one's permutes run beside the other's load


def lower_transpose_shared(writer: RoleWriter, op: TransposeShared) -> None:
    """Each warp: LDSM.trans transposes pairs of elements, two PRMT for each two registers the pairs, STSM."""
    rows, cols, warps = op.src.rows, op.src.cols, writer.role.warps
    if rows % PIECE_ROWS or cols % (PIECE_COLS * warps):
        raise UserError(
            f"{rows} x {cols} elements do not divide into pieces of {PIECE_ROWS} x {PIECE_COLS} for {warps} warps",
            where=writer.where,
            hint=f"rows must be a multiple of {PIECE_ROWS}, columns of {PIECE_COLS * warps}",
        )
    bases = shared_base(writer, op.src), shared_base(writer, op.dst)
    step = PIECE_COLS * warps
    pieces = [(row, col) for col in range(0, cols, step) for row in range(0, rows, PIECE_ROWS)]
    for first in range(0, len(pieces), TOGETHER):
        part = pieces[first : first + TOGETHER]
        addresses = [writer.scalar("LOP3", base, name="address") for base in bases]
        loaded = [_load(writer, addresses[0]) for _ in part]
        turned = [_permute(writer, value) for value in loaded]
        for (row, col), value in zip(part, turned, strict=True):
            effect = _effect(writer, op.src, op.dst, row, col)
            writer.emit("STSM", src=(addresses[1], whole(value)), bytes=MATRIX_BYTES, effect=effect)


def _load(writer: RoleWriter, address: Operand) -> Value:
    value = writer.value("pairs", MATRIX_REGISTERS)
    writer.emit("LDSM", value, (address,), bytes=MATRIX_BYTES)
    return value


def _permute(writer: RoleWriter, pairs: Value) -> Value:
    """Of two registers that hold pairs (a, b) one gets the first elements and one the second."""
    turned = writer.value("turned", MATRIX_REGISTERS)
    for index in range(MATRIX_REGISTERS):
        first = index // 2 * 2
        writer.emit("PRMT", Operand(turned, index), (Operand(pairs, first), Operand(pairs, first + 1)))
    return turned


def _effect(writer: RoleWriter, src: SharedRef, dst: SharedRef, row: int, col: int) -> int:
    """One copy of a piece by each warp, read and written when STSM stores it."""
    read, write = writer.shared_access(src), writer.shared_access(dst)
    read = replace(
        read, row=read.row + row, rows=PIECE_ROWS, col=read.col + col, cols=PIECE_COLS,
        rank_col=PIECE_COLS, rank_cols=writer.role.warps,
    )  # fmt: skip
    write = replace(
        write, row=write.row + col, rows=PIECE_COLS, col=write.col + row, cols=PIECE_ROWS, rank_row=PIECE_COLS
    )
    return writer.effect("copy", [read], [write], transposed=1)
