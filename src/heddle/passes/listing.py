"""A compact listing of a program between passes, for `print_after` and tests."""

from __future__ import annotations

from heddle.ir.warp import Control, Instruction, WarpProgram
from heddle.passes.draft import Draft, DraftProgram, Operand, RoleDraft
from heddle.passes.layout_to_warps import LaidOut

PREFIX = {"vector": "R", "uniform": "UR", "predicate": "P", "pool": "POOL", "zero": "RZ"}


def listing(program: object) -> str:
    """The program as text, whatever pass it comes from."""
    if isinstance(program, LaidOut):
        return "\n".join(
            f"{role}.{tile}: {layout.kind}, {layout.bands} x {layout.rows} x {layout.cols} a warp, "
            f"{layout.registers} registers a lane"
            for (role, tile), layout in program.layouts.items()
        )
    if isinstance(program, DraftProgram):
        return "\n".join(line for role in program.roles for line in _role(role))
    if isinstance(program, WarpProgram):
        return "\n".join(_warp_rows(program))
    return str(program)


def _role(role: RoleDraft) -> list[str]:
    lines = [f"role {role.body.name}: {role.body.warps} warps"]
    return lines + [_draft(draft, role) for draft in role.code]


def _draft(draft: Draft, role: RoleDraft) -> str:
    if draft.label:
        return f"{draft.label}:"
    operands = ", ".join(_operand(o, role) for o in draft.dst + draft.src)
    target = f" -> {draft.target}" if draft.target else ""
    return f"  {_control(draft.control)} {draft.op} {operands}{_fields(draft.row)}{target}".rstrip()


def _operand(operand: Operand, role: RoleDraft) -> str:
    reuse = ".reuse" if operand.reuse else ""
    if operand.value.file == "zero":
        return "RZ"
    base = role.registers.get(operand.value.id)
    if base is None:
        return f"%{operand.value.name}.{operand.value.id}[{operand.offset}:{operand.offset + operand.count}]"
    first = base + operand.offset
    span = f"{first}..{first + operand.count - 1}" if operand.count > 1 else str(first)
    return f"{PREFIX[operand.value.file]}{span}{reuse}"


def _control(control: Control) -> str:
    waits = "".join(str(k) if k in control.wait else "-" for k in range(6))
    write = "-" if control.write_barrier is None else str(control.write_barrier)
    read = "-" if control.read_barrier is None else str(control.read_barrier)
    return f"[{waits} R{read} W{write} {control.stall:2}]"


def _fields(row: Instruction) -> str:
    parts = []
    if row.shape:
        parts.append("x".join(map(str, row.shape)) + (f".{row.form}" if row.form else ""))
    if row.barrier:
        parts.append(f"@{row.barrier.name}")
    if row.stream:
        parts.append(f"<{row.stream.name} {row.stream.part}/{row.stream.parts}>")
    if row.bytes:
        parts.append(f"{row.bytes}B")
    if row.advance:
        parts.append("advance " + ",".join(row.advance))
    return " " + " ".join(parts) if parts else ""


def _warp_rows(program: WarpProgram) -> list[str]:
    entries = {role.entry: role for role in program.roles}
    lines = []
    for pc, row in enumerate(program.instructions):
        if pc in entries:
            lines.append(f"role {entries[pc].name}: {entries[pc].warps} warps")
        registers = [row.dst, *row.src] if row.dst else list(row.src)
        operands = ", ".join(
            f"R{r.index}" + (f"..{r.index + r.count - 1}" if r.count > 1 else "") + (".reuse" if r.reuse else "")
            for r in registers
        )
        target = f" -> {row.target}" if row.target is not None else ""
        lines.append(f"{pc:5} {_control(row.control)} {row.op} {operands}{_fields(row)}{target}".rstrip())
    return lines
