"""Blackwell arithmetic on register tiles whose rows lie in lanes: two fp32 elements an instruction, three-input maxima.

Packed instructions (FADD2, FMUL2, FFMA2) take pairs of neighbouring registers, or one register for both elements. They
halve issue slots, not lanes. Everything else is as on other generations.
"""

from __future__ import annotations

from dataclasses import replace

from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import Elementwise, Mask, RowReduce
from heddle.passes.draft import Operand
from heddle.passes.select import elementwise as common
from heddle.passes.select.exponential import emit_polynomial_pair
from heddle.passes.select.writer import RoleWriter

CHAINS = 4  # independent chains of a reduction over a row, so that latency is hidden
PREDICATE_BITS = 7  # R2P moves up to seven bits of a register to predicates (CUDA binary utilities documentation)
PACKED_STEPS: dict[str, tuple[str, str]] = {
    "add": ("FADD2", "01"),
    "sub": ("FADD2", "01"),
    "mul": ("FMUL2", "01"),
    "scale": ("FMUL2", "0"),
    "neg": ("FMUL2", "0"),
    "fma": ("FFMA2", "012"),
    "scaled_sub": ("FFMA2", "01"),
    "exp2_scaled_sub": ("FFMA2", "01"),
    "exp2_poly_scaled_sub": ("FFMA2", "01"),
}


def lower_elementwise(writer: RoleWriter, op: Elementwise) -> None:
    """Pairs of elements where the function has a packed form and the tiles hold fp32 rows; else as elsewhere."""
    target = writer.layout(op.dst)
    start = len(writer.code)
    if target.kind == "lane" and target.cols > 1 and dtype_bytes(target.tile.dtype) == common.REGISTER_BYTES:
        if op.function == "exp2_mixed":
            _mixed(writer, op)
        elif op.function in PACKED_STEPS:
            _packed(writer, op)
        else:
            common.lower_elementwise(writer, op)
            return
        common.add_elementwise_effects(writer, start, op)
        return
    if op.function == "max" and len(op.sources) > 2 and target.cols == 1:
        sources = [common.source_registers(writer, op, i) for i in range(len(op.sources))]
        for dst, *parts in zip(common.target_registers(writer, op), *sources, strict=True):
            writer.emit("FMNMX3", dst, parts)
        common.add_elementwise_effects(writer, start, op)
        return
    common.lower_elementwise(writer, op)


def _packed(writer: RoleWriter, op: Elementwise) -> None:
    opcode, names = PACKED_STEPS[op.function]
    targets = common.target_registers(writer, op)
    sources = [common.source_registers(writer, op, i) for i in range(len(op.sources))]
    for i in range(0, len(targets), 2):
        pair = _pair(targets, i)
        used = [_pair(sources[int(name)], i) for name in names if int(name) < len(sources)]
        writer.emit(opcode, pair, used)
        elements = (targets[i], targets[i + 1])
        if op.function == "exp2_poly_scaled_sub":
            emit_polynomial_pair(writer, elements, elements)
        elif op.function == "exp2_scaled_sub":
            for element in elements:
                writer.emit("MUFU", element, (element,))


def _mixed(writer: RoleWriter, op: Elementwise) -> None:
    """Of each `period` columns the last `share` by the polynomial, the others on the special function unit."""
    period, share = (int(value) for value in op.scalars)
    targets, sources = common.target_registers(writer, op), common.source_registers(writer, op, 0)
    width = op.dst_cols or writer.layout(op.dst).cols
    for i in range(0, len(targets), 2):
        if i % width % period < period - share:
            for j in (i, i + 1):
                writer.emit("MUFU", targets[j], (sources[j],))
        else:
            emit_polynomial_pair(writer, (targets[i], targets[i + 1]), (sources[i], sources[i + 1]))


def _pair(registers: list[Operand], index: int) -> Operand:
    """Two registers as one operand: neighbours of one value, or one register that serves both elements."""
    first, second = registers[index], registers[index + 1]
    if first == second:
        return first
    assert first.value == second.value
    assert second.offset == first.offset + 1
    return replace(first, count=2)


def lower_row_reduce(writer: RoleWriter, op: RowReduce) -> None:
    """Several chains over the columns of each row: three-input maxima, or packed sums, and then over the chains."""
    source = writer.layout(op.src)
    cols = op.src_cols or source.cols
    if source.kind != "lane" or cols < 2 * CHAINS or dtype_bytes(source.tile.dtype) != common.REGISTER_BYTES:
        common.lower_row_reduce(writer, op)
        return
    start = len(writer.code)
    registers = common.part_registers(writer, op.src, op.src_col, cols)
    column = writer.tile_registers(op.dst)
    for row, result in enumerate(column):
        parts = registers[row * cols : (row + 1) * cols]
        _reduce = _maximum if op.function == "max" else _sum
        _reduce(writer, parts, result, op.accumulate)
    common.add_row_reduce_effects(writer, start, op)


def _maximum(writer: RoleWriter, parts: list[Operand], result: Operand, accumulate: bool) -> None:
    chains: list[Operand] = []
    for i in range(0, len(parts), 2):
        chain = chains[i // 2 % CHAINS] if i >= 2 * CHAINS else result if i == 0 and accumulate else None
        total = Operand(writer.value("highest"))
        if chain is None:
            writer.emit("FMNMX", total, parts[i : i + 2])
        else:
            writer.emit("FMNMX3", total, (chain, *parts[i : i + 2]))
        if i < 2 * CHAINS:
            chains.append(total)
        else:
            chains[i // 2 % CHAINS] = total
    first = Operand(writer.value("highest"))
    writer.emit("FMNMX3", first, chains[:3])
    writer.emit("FMNMX", result, (first, chains[3]))


def _sum(writer: RoleWriter, parts: list[Operand], result: Operand, accumulate: bool) -> None:
    chains = [_pair(parts, i) for i in range(0, 2 * CHAINS, 2)]
    for i in range(2 * CHAINS, len(parts), 2):
        chains[i // 2 % CHAINS] = _added(writer, chains[i // 2 % CHAINS], _pair(parts, i))
    total = _added(writer, _added(writer, chains[0], chains[1]), _added(writer, chains[2], chains[3]))
    halves = (Operand(total.value, total.offset), Operand(total.value, total.offset + 1))
    if not accumulate:
        writer.emit("FADD", result, halves)
        return
    both = Operand(writer.value("sum"))
    writer.emit("FADD", both, halves)
    writer.emit("FADD", result, (result, both))


def _added(writer: RoleWriter, first: Operand, second: Operand) -> Operand:
    total = Operand(writer.value("sums", 2), 0, 2)
    writer.emit("FADD2", total, (first, second))
    return total


def lower_mask(writer: RoleWriter, op: Mask) -> None:
    """A bit for each column that the row keeps, moved to predicates seven at a time, and one selection an element."""
    layout = writer.layout(op.dst)
    if layout.kind != "lane" or dtype_bytes(layout.tile.dtype) != common.REGISTER_BYTES:
        common.lower_mask(writer, op)
        return
    start, registers = len(writer.code), writer.tile_registers(op.dst)
    corner = writer.scalar("IADD3", name="corner")
    for band in range(layout.bands):
        limit = writer.scalar("IADD3", corner, name="last_column")
        if op.causal and op.limit:
            limit = writer.scalar("VIADD", limit, name="last_column")
        row = registers[band * layout.cols : (band + 1) * layout.cols]
        for begin in range(0, layout.cols, common.LANE_BITS):
            _select(writer, row[begin : begin + common.LANE_BITS], writer.scalar("IADD3", limit, name="left"))
    common.add_mask_effects(writer, start, op)


def _select(writer: RoleWriter, word: list[Operand], left: Operand) -> None:
    """Keep the first `left` of up to 32 registers."""
    bits = writer.scalar("SHF", left, name="bits")
    for first in range(0, len(word), PREDICATE_BITS):
        part = word[first : first + PREDICATE_BITS]
        kept = [Operand(writer.value("kept", file="predicate")) for _ in part]
        writer.emit("R2P", kept, (bits,))
        for register, predicate in zip(part, kept, strict=True):
            writer.emit("FSEL", register, (register, predicate))
