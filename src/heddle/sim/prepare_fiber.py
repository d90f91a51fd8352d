"""The third part of program rows (`core.layout_fiber`, Y_ words): registers, bits and matrix instructions of wefts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UnsupportedError, unknown_name
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.verify_flow import reachable
from heddle.ir.warp import RZ, Instruction, Register, WarpProgram
from heddle.ir.warp_fiber import OWN, TENSOR, Bind, wefts_of
from heddle.machine.spec import Machine
from heddle.sim.core import layout_fiber as f
from heddle.sim.prepare import cycles_to_ticks, transfer_ticks, where_is

Row = NDArray[np.int64]
MATRIX_UNITS = (Unit.WGMMA, Unit.WEFT_MMA)
MATRIX_OPERANDS = 2  # the first source slots of a matrix instruction; a third is the accumulator that is read
STEP_COLUMNS = 8  # columns of the steps in which operands are read ahead (docs/reference/fiber.md, section 6)


def is_matrix(instruction: Instruction) -> bool:
    """Tell whether an instruction accumulates."""
    return instruction.op == "HMMA" or OPCODES[instruction.op].unit in MATRIX_UNITS


def is_remote(instruction: Instruction) -> bool:
    """Tell whether an instruction is an X instruction: the arbiter decides about its ports."""
    named = any(source.place not in (None, TENSOR) for source in instruction.src)
    return named and OPCODES[instruction.op].unit not in (Unit.WEFT_MMA, Unit.BUSY_BIT)


def bases(program: WarpProgram) -> dict[int, int]:
    """Return the base of the roles that reach each instruction. Raises UnsupportedError where roles differ in it."""
    found: dict[int, int] = {}
    for role in program.roles:
        for pc in reachable(program, role):
            if found.setdefault(pc, role.base) != role.base:
                raise UnsupportedError(
                    f"{program.name}: pc {pc} is run by roles of both windows, with bases {found[pc]} and {role.base}",
                    hint="give roles of different bases code of their own",
                    where=where_is(program, pc),
                )
    return found


def packed(register: Register | None) -> int:
    """Return a group of registers as a word (`layout_fiber.Y_DST`); 0 for none and for the zero register."""
    if register is None or (register.place is None and register.index == RZ):
        return 0
    kind = f.GROUP_LOCAL
    if register.place is not None:
        named = {OWN: f.GROUP_OWN, TENSOR: f.GROUP_TENSOR}
        kind = named.get(register.place, f.GROUP_PLACE + register.place)
    return register.count | register.index << 16 | kind << 32


def _bind(bind: Bind) -> int:
    """Return what a bind adds to the instruction behind it."""
    consume = sum(1 << slot for slot in bind.consume)
    readers = sum(1 << part for part in bind.readers) or 1 << f.ANYBODY
    scoped = sum(1 << slot for slot in bind.scoped) << f.BIND_SCOPED_SHIFT
    return consume | f.BIND_HOLD * bind.hold | scoped | readers << f.BIND_READERS_SHIFT


def _registers(row: Row, program: WarpProgram, machine: Machine, pc: int) -> None:
    """Fill in what bits and ports need to know."""
    instruction = program.instructions[pc]
    unit, matrix = OPCODES[instruction.op].unit, is_matrix(instruction)
    if len(instruction.src) > f.SOURCES:
        raise UnsupportedError(
            f"{instruction.op} at pc {pc} has {len(instruction.src)} sources; the engine takes up to {f.SOURCES}",
            where=where_is(program, pc),
        )
    row[f.Y_FLAGS] = (
        f.FLAG_REMOTE * is_remote(instruction)
        | f.FLAG_MATRIX * matrix
        | f.FLAG_TESTS * (unit is not Unit.BUSY_BIT)
        | f.FLAG_GROUP * instruction.group
        | f.FLAG_TM * (instruction.op == "WMMA.TM")
    )
    row[f.Y_DST] = packed(instruction.dst)
    for slot, source in enumerate(instruction.src):
        row[f.Y_SOURCE + slot] = packed(source)
    operands = min(MATRIX_OPERANDS, len(instruction.src)) if matrix else len(instruction.src)
    row[f.Y_SOURCES] = operands
    row[f.Y_PORT_SLOTS] = min(operands, MATRIX_OPERANDS) if unit is Unit.TCGEN05_MMA else operands
    if matrix:
        third = len(instruction.src) > MATRIX_OPERANDS
        row[f.Y_ACCUMULATOR] = packed(instruction.src[MATRIX_OPERANDS] if third else instruction.dst)
    before = program.instructions[pc - 1].bind if pc else None
    row[f.Y_BIND] = _bind(before if before is not None else Bind())
    if unit is Unit.BUSY_BIT:
        row[f.Y_BIND] = f.CHANGE_FULL * (instruction.bit == "full") | f.CHANGE_SET * instruction.set_bit


def _weft_matrix(row: Row, program: WarpProgram, machine: Machine, pc: int, signatures: list[object]) -> None:
    """Fill in durations of a weft's matrix instruction."""
    instruction, where = program.instructions[pc], where_is(program, pc)
    assert instruction.shape is not None  # checked by the verifier
    m, n, k = instruction.shape
    if instruction.dtype not in machine.tensor_rate_scale:
        raise unknown_name(f"matrix type of {machine.name}", instruction.dtype, machine.tensor_rate_scale, where)
    rate = machine.tensor_flops_per_cycle / machine.subpartitions * machine.tensor_rate_scale[instruction.dtype]
    size = dtype_bytes(instruction.dtype, where)
    a = m * k * size if instruction.form[0] == "s" else 0
    b = n * k * size if instruction.form[1] == "s" else 0
    row[f.Y_PRODUCTS] = transfer_ticks(2 * m * n * k, rate)
    row[f.Y_STEP] = machine.operand_prefetch_steps * transfer_ticks(2 * m * STEP_COLUMNS * k, rate)
    row[f.Y_SHARED_A], row[f.Y_SHARED_B] = a, b
    row[f.Y_SHARED_TICKS] = transfer_ticks(a + b, machine.shared_bytes_per_cycle)
    row[f.Y_GROUP_TICKS] = transfer_ticks(machine.subpartitions * a + b, machine.shared_bytes_per_cycle)
    row[f.Y_COMPLETE] = cycles_to_ticks(_completion_cycles(instruction, machine, program, pc))
    signature = (instruction.op, instruction.shape, instruction.form, instruction.dtype)
    if signature not in signatures:
        signatures.append(signature)
    row[f.Y_SIGNATURE] = signatures.index(signature)


def _completion_cycles(instruction: Instruction, machine: Machine, program: WarpProgram, pc: int) -> int:
    """Return the cycles from the last operand (WMMA), or from the end of the products (WMMA.TM), to the result."""
    if instruction.op == "WMMA.TM":
        key = f"{'ss' if instruction.form[0] == 's' else 'ts'}_m128_1cta"
        if key not in machine.tcgen05_latency_cycles:
            raise UnsupportedError(
                f"{machine.name} has no tensor memory: no latency {key!r} for WMMA.TM", where=where_is(program, pc)
            )
        return machine.tcgen05_latency_cycles[key]
    if machine.wgmma_tail_cycles:
        return machine.wgmma_tail_cycles
    timing = machine.op_timing("HMMA", dtype=instruction.dtype)
    return max(0, timing.latency_cycles - cycles_to_ticks(timing.initiation_cycles) // cycles_to_ticks(1))


def prepare_fiber(program: WarpProgram, machine: Machine, kept: list[int]) -> NDArray[np.int64]:
    """Return the Y_ words of all rows; `kept`: mask of source slots of each that the reuse cache can hold."""
    rows = np.zeros((len(program.instructions), f.Y_WORDS), dtype=np.int64)
    signatures: list[object] = []
    for pc, instruction in enumerate(program.instructions):
        _registers(rows[pc], program, machine, pc)
        rows[pc, f.Y_KEPT] = kept[pc]
        unit = OPCODES[instruction.op].unit
        if unit is Unit.WEFT_MMA:
            _weft_matrix(rows[pc], program, machine, pc, signatures)
        elif unit is Unit.SET_FIBER_NUM:
            rows[pc, f.Y_FIBERS] = wefts_of(instruction.fibers) << 1 | instruction.all_scope
    return rows.reshape(-1)
