"""Gates: silu of eight columns times the eight that follow, both in the same thread."""

from __future__ import annotations

from heddle.errors import UserError
from heddle.ir.tile import GATE_COLUMNS, Gate
from heddle.passes.draft import Operand
from heddle.passes.select.elementwise import FP32_STEPS, add_effects, part_registers
from heddle.passes.select.writer import RoleWriter

ATOM_REGISTERS = {"fragment": 4, "group": 4, "lane": GATE_COLUMNS}
"""Registers of a thread for eight columns: of two rows of an atom, or of its own row."""


def lower_gate(writer: RoleWriter, op: Gate) -> None:
    """The steps of silu on each gate, and one product."""
    source, target = writer.layout(op.src), writer.layout(op.dst)
    if source.kind not in ATOM_REGISTERS or source.kind != target.kind or source.warps != target.warps:
        raise UserError(f"gates of {op.src} do not lie where {op.dst} does", where=writer.where)
    start, width = len(writer.code), 2 * target.tile.cols
    registers, targets = part_registers(writer, op.src, op.src_col, width), writer.tile_registers(op.dst)
    size = ATOM_REGISTERS[source.kind]
    for index, dst in enumerate(targets):
        first = index // size * 2 * size + index % size
        _gated(writer, registers[first], registers[first + size], dst)
    columns = (op.src_col, width) if width < source.tile.cols else ()
    add_effects(writer, start, "gate", [op.src], op.dst, columns)


def _gated(writer: RoleWriter, gate: Operand, factor: Operand, dst: Operand) -> None:
    temporary = gate
    for opcode, names in FP32_STEPS["silu"]:
        result = Operand(writer.value("t"))
        writer.emit(opcode, result, [temporary if name == "t" else gate for name in names])
        temporary = result
    writer.emit("FMUL", dst, (temporary, factor))
