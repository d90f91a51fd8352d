"""Which form spells a row: the one with its operands and with what it says of shape, type and supply of operands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heddle.errors import UnsupportedError
from heddle.ir.warp import RZ, Instruction, Register
from heddle.ir.warp_fiber import TENSOR
from heddle.isa.emission.form import Form, Forms, Slot

COLUMNS = "n"
CLUSTER = "cluster"


def choose_form(row: Instruction, forms: Forms, allocates: bool = False) -> Form:
    """Return the form of a row. `allocates`: setmaxnreg asks for more. Raises UnsupportedError if there is none."""
    found = [form for form in forms.by_op.get(row.op, ()) if _suits(form, row, allocates)]
    if not found:
        raise UnsupportedError(
            f"{describe(row)} has no encoding on {forms.architecture}",
            hint="the forms that exist are in docs/reference/binary.md",
        )
    return min(found, key=lambda form: _distance(form, row))


def signature(row: Instruction, allocates: bool) -> tuple[object, ...]:
    """Return all that the choice of a form depends on."""
    operands = tuple(_kind(register) for register in (row.dst, *row.src))
    return (row.op, operands, row.shape, row.form, row.dtype, row.ctas, row.bytes, allocates)


def _kind(register: Register | None) -> tuple[bool, int, bool] | None:
    return None if register is None else (is_zero(register), register.count, register.place == TENSOR)


def describe(row: Instruction) -> str:
    """Return opcode and operands of a row for a message."""
    operands = ", ".join(_operand(register) for register in row.src)
    target = f"{_operand(row.dst)} = " if row.dst else ""
    extra = " ".join(filter(None, ("m{}n{}k{}".format(*row.shape) if row.shape else "", row.form, row.dtype)))
    return " ".join(filter(None, (row.op, target + operands, extra)))


def _operand(register: Register) -> str:
    return "RZ" if is_zero(register) else f"R{register.index}:{register.count}"


def is_zero(register: Register) -> bool:
    """Tell whether an operand is the zero register."""
    return register.index == RZ and register.count == 1 and register.place is None


def _distance(form: Form, row: Instruction) -> tuple[int, int]:
    """Order forms by width: the narrowest that holds what the row moves, so that a part of it is the exception."""
    moved = form.row.get("bytes", row.bytes)
    return (int(moved < row.bytes), abs(moved - row.bytes))


def _suits(form: Form, row: Instruction, allocates: bool) -> bool:
    known = {"form": row.form, "dtype": row.dtype, "allocates": allocates}
    if any(name in known and known[name] != value for name, value in form.row.items()):
        return False
    if not _same_ctas(form.row.get("ctas", row.ctas), row.ctas):
        return False
    shape = form.row.get("shape")
    if shape and not (row.shape and all(want in (COLUMNS, got) for want, got in zip(shape, row.shape, strict=True))):
        return False
    named = "register" in form.fields  # by a number of its own, not in slots
    return named or all(_fits(register, slot, row) for register, slot in _pairs(form, row))


def _same_ctas(wanted: Any, given: int) -> bool:
    return given > 1 if wanted == CLUSTER else bool(wanted == given)


def _pairs(form: Form, row: Instruction) -> Iterator[tuple[Register | None, Slot | None]]:
    """Yield each operand of the row with the form's slot for it; None where one of both is missing."""
    yield row.dst, form.dst
    slots = form.src
    if form.accumulator and len(row.src) == len(slots) + 1:
        slots = (*slots, form.accumulator)
    for index in range(max(len(slots), len(row.src))):
        yield (
            row.src[index] if index < len(row.src) else None,
            slots[index] if index < len(slots) else None,
        )


def _fits(register: Register | None, slot: Slot | None, row: Instruction) -> bool:
    if register is None or slot is None:
        return register is None and slot is None
    if is_zero(register):
        return True
    columns = row.shape[1] if row.shape else 0
    return (register.place == TENSOR) == slot.tensor and register.count == slot.registers(columns)
