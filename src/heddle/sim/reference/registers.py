"""Which registers of the SM an instruction of a weft means (docs/reference/fiber.md, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Instruction, Register
from heddle.ir.warp_fiber import OWN, TENSOR

if TYPE_CHECKING:
    from heddle.sim.reference.warp import Warp

MATRIX_UNITS = (Unit.WGMMA, Unit.WEFT_MMA)
MATRIX_OPERANDS = 2  # the first slots of a matrix instruction; the third is the accumulator that is read


class Physical(NamedTuple):
    """A vector register of a FIBER-thread, or 32 columns of its tensor memory, in one subpartition."""

    subpartition: int
    number: int
    tensor: bool = False

    def __str__(self) -> str:
        kind = f"columns {32 * self.number} to {32 * self.number + 31}" if self.tensor else f"R{self.number}"
        return f"{kind} of subpartition {self.subpartition}"


def is_matrix(instruction: Instruction) -> bool:
    """Tell whether an instruction accumulates: HMMA, wgmma and the matrix instructions of wefts."""
    return instruction.op == "HMMA" or OPCODES[instruction.op].unit in MATRIX_UNITS


def is_remote(instruction: Instruction) -> bool:
    """Tell whether the arbiter decides about an instruction: a source has an absolute address (an X instruction)."""
    named = any(source.place not in (None, TENSOR) for source in instruction.src)
    return named and OPCODES[instruction.op].unit not in (Unit.WEFT_MMA, Unit.BUSY_BIT)


def registers(warp: Warp, register: Register) -> tuple[Physical, ...]:
    """Return the registers of a group; none for the zero register."""
    own = warp.subpartition
    if register.place is None:
        if register.index == RZ:
            return ()
        first, place = warp.role.base + register.index, own
    else:
        first, place = register.index, own if register.place in (OWN, TENSOR) else register.place
    numbers = range(first, first + register.count)
    return tuple(Physical(place, number, register.place == TENSOR) for number in numbers)


def simd_slots(instruction: Instruction) -> tuple[Register, ...]:
    """Return the slots that read ports deliver when the instruction issues."""
    unit = OPCODES[instruction.op].unit
    if unit in (Unit.WEFT_MMA, Unit.BUSY_BIT):
        return ()  # a weft's matrix instruction reads when it starts; a bit's register is named, not read
    if instruction.op == "HMMA" and len(instruction.src) == MATRIX_OPERANDS and instruction.dst is not None:
        return (*instruction.src, instruction.dst)  # the accumulators come from registers
    if instruction.op == "HMMA":
        return instruction.src
    matrix = is_matrix(instruction) or unit is Unit.TCGEN05_MMA
    slots = instruction.src[:MATRIX_OPERANDS] if matrix else instruction.src
    return slots


def accumulators(warp: Warp, instruction: Instruction) -> tuple[Physical, ...]:
    """Return the accumulators that a matrix instruction reads: its third source if it has one, else its destination."""
    if not is_matrix(instruction):
        return ()
    if len(instruction.src) > MATRIX_OPERANDS:
        return registers(warp, instruction.src[MATRIX_OPERANDS])
    return written(warp, instruction)


def operands(warp: Warp, instruction: Instruction) -> tuple[Physical, ...]:
    """Return the sources but for accumulators."""
    slots = instruction.src[:MATRIX_OPERANDS] if is_matrix(instruction) else instruction.src
    return tuple(register for slot in slots for register in registers(warp, slot))


def written(warp: Warp, instruction: Instruction) -> tuple[Physical, ...]:
    """Return the registers of the destination."""
    return () if instruction.dst is None else registers(warp, instruction.dst)
