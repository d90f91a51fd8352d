"""Checks of weft-level matrix instructions: shape, where operands lie, and how many registers they take."""

from __future__ import annotations

from collections.abc import Iterator

from heddle.ir.dtypes import DTYPE_BYTES
from heddle.ir.opcodes import Unit
from heddle.ir.verify_problem import Problem, unit_of
from heddle.ir.warp import RZ, Instruction, Register, WarpProgram
from heddle.ir.warp_fiber import TENSOR

FORMS = ("rr", "rs", "sr", "ss", "tr", "ts")
ROWS = {"sm_80": 16, "sm_90": 16, "sm_100": 32}  # of a weft's matrix instruction
MOST_COLUMNS = 256
LANES = 32
_OTHER_MATRIX_OPS = (Unit.WGMMA, Unit.TCGEN05_MMA)


def matrix_family_problems(program: WarpProgram) -> Iterator[Problem]:
    """Yield other matrix instructions beside those of wefts: both would share the tensor cores (not modelled)."""
    units = [unit_of(instruction) for instruction in program.instructions]
    wefts = Unit.WEFT_MMA in units
    for pc, unit in enumerate(units):
        if wefts and (unit in _OTHER_MATRIX_OPS or program.instructions[pc].op == "HMMA"):
            yield Problem("a program with WMMA has no other matrix instructions", pc)


def weft_mma_problems(program: WarpProgram, instruction: Instruction) -> Iterator[str]:
    """Yield what is wrong with one matrix instruction of a weft."""
    rows = ROWS.get(program.architecture, 16)
    m, n, k = instruction.shape or (0, 0, 0)
    if m != rows or not 8 <= n <= MOST_COLUMNS or n % 8 or k < 1:
        yield (
            f"shape {instruction.shape} of {instruction.op}; "
            f"needs m {rows}, n a multiple of 8 up to {MOST_COLUMNS}, and k"
        )
        return
    if instruction.form not in FORMS or instruction.dtype not in DTYPE_BYTES:
        yield f"form {instruction.form!r} and dtype {instruction.dtype!r} of {instruction.op}; "
        yield f"forms: {', '.join(FORMS)}; types: {', '.join(DTYPE_BYTES)}"
        return
    size = DTYPE_BYTES[instruction.dtype]
    yield from _operand(instruction, 0, m * k * size)
    yield from _operand(instruction, 1, n * k * size)
    yield from _accumulator(instruction, m * n * DTYPE_BYTES["fp32"])


def _is_zero(register: Register) -> bool:
    return register.place is None and register.index == RZ


def _operand(instruction: Instruction, slot: int, size: int) -> Iterator[str]:
    """Check that an operand lies where the form says, and has its size."""
    source, letter = instruction.src[slot] if slot < len(instruction.src) else None, instruction.form[slot]
    if letter == "s":
        if source is not None and not _is_zero(source):
            yield f"operand {'AB'[slot]} of form {instruction.form} is in shared memory; its slot must be RZ"
    elif source is None or _is_zero(source):
        yield f"operand {'AB'[slot]} of form {instruction.form} needs registers in slot {'AB'[slot]}"
    elif (source.place == TENSOR) != (letter == "t"):
        yield f"operand {'AB'[slot]} of form {instruction.form}: slot {'AB'[slot]} names the wrong kind of register"
    elif letter == "r" and source.count != -(-size // (4 * LANES)):
        yield f"operand {'AB'[slot]} has {source.count} registers; {size} bytes take {-(-size // (4 * LANES))}"


def _accumulator(instruction: Instruction, size: int) -> Iterator[str]:
    tensor, dst = instruction.op == "WMMA.TM", instruction.dst
    if dst is None or (dst.place == TENSOR) != tensor:
        where = "tensor memory" if tensor else "vector registers"
        yield f"{instruction.op} needs accumulators in {where} as destination"
        return
    if not tensor and dst.count != size // (4 * LANES):
        yield f"the accumulator has {dst.count} registers; {size} bytes take {size // (4 * LANES)}"
    added = instruction.src[2] if len(instruction.src) > 2 else None
    if added is None or _is_zero(added):
        return
    if added.count != dst.count or (added.place == TENSOR) != tensor:
        yield "the accumulator that is read (C) and the one that is written are not of one kind and size"
