"""4-bit weights to fp16, as compilers emit it for eight weights of a word: 17 instructions, none of them a conversion.

A nibble or-ed into the mantissa of 1024 is 1024 + weight, one that stands four bits higher 1024 + 16 weight. So with
two masks, and once more after a shift by 8, one LOP3 gives a pair; an addition, or a multiplication by 1/16 in the same
step, takes 1024 away; the zero point and the scale of the column follow. (Four of each in two shapes: 4 LOP3, SHF, 2 of
HADD2 and HFMA2, then 4 HADD2 and 4 HMUL2.)
"""

from __future__ import annotations

from dataclasses import replace

from heddle.errors import UserError
from heddle.ir.tile import CODE_WEIGHTS, Dequantize, LookUp
from heddle.ir.warp import Access
from heddle.passes.draft import Operand
from heddle.passes.layout_to_warps import WarpLayout
from heddle.passes.select.fiber_hmma import ATOM, along_columns, operand_atom
from heddle.passes.select.writer import RoleWriter

STEP_ROWS = 16
"""Of the summed extent that one mma.sync takes; a word of a lane serves two of its second operands there."""


def lower_dequantize(writer: RoleWriter, op: Dequantize) -> None:
    """Unpack word by word, in the order of the products; one effect for all."""
    target, source = writer.layout(op.dst), writer.layout(op.src)
    if target.kind != "second" or target.tile.rows % STEP_ROWS:
        raise UserError(
            f"{op.dst} of {target.tile.rows} rows is no second operand that steps of {STEP_ROWS} divide",
            where=writer.where,
        )
    words = writer.tile_registers(op.src)
    first = len(words) * op.src_row // source.rows
    operands = writer.tile_values(op.dst)
    scales, zeros = writer.tile_registers(op.scale), writer.tile_registers(op.zero)
    blocks = len(operands) // (target.rows // STEP_ROWS)  # operands of one step: eight columns each
    for number in range(len(operands) // 2):
        pair = operands[2 * number : 2 * number + 2]
        registers = [part for value in pair for part in (Operand(value, 0), Operand(value, 1))]
        column = 2 * number % blocks // 2  # a register holds the values of two columns of a lane
        unpack(writer, words[first + number], registers, zeros[column], scales[column])
    reads = [writer.tile_band(name, 0) for name in (op.src, op.scale, op.zero)]
    reads[0] = replace(reads[0], row=op.src_row, rows=target.rows // CODE_WEIGHTS)
    writer.attach_effect(writer.effect("dequantize", reads, [writer.tile_band(op.dst, 0)]))


def lower_into_pool(writer: RoleWriter, op: Dequantize) -> None:
    """Mode fiber on sm_80: a word is an atom of 16 columns of the product and 16 elements of k."""
    target, source = writer.layout(op.dst), writer.layout(op.src)
    if not lies_as(target, source):
        raise UserError(
            f"{op.dst} is no pool tensor that is divided as {op.src} is: along what is summed over, or into the "
            "columns that each weft multiplies",
            where=writer.where,
        )
    words = writer.tile_registers(op.src)
    scales, zeros = writer.tile_registers(op.scale), writer.tile_registers(op.zero)
    blocks = target.rows // ATOM
    for step in range(target.cols // ATOM):
        for block in range(blocks):
            atom = operand_atom(writer, op.dst, block, step)
            registers = [replace(atom, offset=atom.offset + i, count=1) for i in range(atom.count)]
            unpack(writer, words[step * blocks + block], registers, zeros[block], scales[block])
        reads, written = of_steps(writer, op, step * ATOM, ATOM)
        writer.attach_effect(writer.effect("dequantize", reads, [written], transposed=1))


def of_steps(writer: RoleWriter, op: Dequantize | LookUp, col: int, cols: int) -> tuple[list[Access], Access]:
    """What a weft reads and writes to make `cols` elements of k, from `col` of its own on, in a pool tensor of sm_80.

    Products of one step may run while the next is made, so each has an effect of its own.
    """
    names = (op.src, op.scale, op.zero) if isinstance(op, Dequantize) else (op.src, op.scale)
    reads = [writer.tile_band(name, 0) for name in names]
    reads[0] = replace(reads[0], row=reads[0].row + col // CODE_WEIGHTS, rows=cols // CODE_WEIGHTS)
    band = writer.tile_band(op.dst, 0)
    return reads, replace(band, col=band.col + col, cols=cols)


def lies_as(target: WarpLayout, source: WarpLayout) -> bool:
    """Whether each weft makes of its codes its own part of a pool tensor of sm_80: of all columns, or of its own."""
    if target.tile.spread == "operand":
        return source.tile.spread == "second" and target.tile.warp_grid == (source.warps, 1)
    along = along_columns(target.tile) and target.tile.warp_grid[1] == source.warps
    return along and source.tile.spread == "summed"


def lower_by_rows(writer: RoleWriter, op: Dequantize) -> None:
    """sm_90, sm_100: weights as rows of a first operand, step by step of 16, each with an effect of its own.

    A lane has eight weights of two rows in a step (wgmma), or sixteen of its row (where a lane is a row).
    """
    target, source = check_by_rows(writer, op.dst, op.src)
    words = writer.tile_registers(op.src)
    scales, zeros = writer.tile_registers(op.scale), writer.tile_registers(op.zero)
    first, (value,) = len(words) * op.src_row // source.rows, writer.tile_values(op.dst)
    of_step = target.rows // ATOM
    for step in range(target.cols // STEP_ROWS):
        for part in range(of_step):
            number = step * of_step + part
            registers = [Operand(value, 4 * number + i) for i in range(4)]
            unpack(writer, words[first + number], registers, zeros[0], scales[0])
        reads = [writer.tile_band(name, 0) for name in (op.src, op.scale, op.zero)]
        rows = STEP_ROWS // CODE_WEIGHTS
        reads[0] = replace(reads[0], row=op.src_row + step * rows, rows=rows)
        written = replace(writer.tile_band(op.dst, 0), col=step * STEP_ROWS, cols=STEP_ROWS)
        writer.attach_effect(writer.effect("dequantize", reads, [written], transposed=1))


def check_by_rows(writer: RoleWriter, dst: str, src: str) -> tuple[WarpLayout, WarpLayout]:
    """Return the layouts of weights as rows and of their codes. Raises UserError where they do not lie alike."""
    target, source = writer.layout(dst), writer.layout(src)
    alike = source.tile.spread == "second" and source.warps == target.warps
    if target.kind not in ("group", "lane") or target.bands != 1 or not alike:
        raise UserError(
            f"{dst} of {target.tile.rows} rows is no first operand whose warps have the columns they have of {src}",
            where=writer.where,
            hint=f"rows are 16 for each warp (sm_90), or 32 (sm_100), and {src} is spread as second over as many warps",
        )
    return target, source


def unpack(writer: RoleWriter, word: Operand, targets: list[Operand], zero: Operand, scale: Operand) -> None:
    """The eight weights of a register into four registers of two."""
    magic = writer.kept("weights.magic", file="vector", op="MOV")
    sixteenth = writer.kept("weights.sixteenth", file="vector", op="MOV")
    upper = writer.scalar("SHF", word, name="upper")
    for index, dst in enumerate(targets):
        pair = writer.scalar("LOP3", upper if index // 2 else word, magic, name="pair")
        if index % 2:
            plain = writer.scalar("HFMA2", pair, sixteenth, name="weights")
        else:
            plain = writer.scalar("HADD2", pair, name="weights")
        moved = writer.scalar("HADD2", plain, zero, name="moved")
        writer.emit("HMUL2", dst, (moved, scale))
