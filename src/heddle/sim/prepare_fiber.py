"""The third part of program rows (`core.layout_fiber`, Y_ words): registers, bits and matrix instructions of wefts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.errors import SourceLocation, UnsupportedError, unknown_name
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.verify_flow import reachable
from heddle.ir.warp import RZ, Instruction, Register, WarpProgram
from heddle.ir.warp_fiber import OWN, TENSOR, Bind, wefts_of
from heddle.machine.spec import Machine
from heddle.sim.core import layout as c
from heddle.sim.core import layout_fiber as f
from heddle.sim.prepare import cycles_to_ticks, timing_of, transfer_ticks, where_is
from heddle.sim.prepare_bits import BitUses, bit_uses, is_matrix

Row = NDArray[np.int64]
MATRIX_OPERANDS = 2  # the first source slots of a matrix instruction; a third is the accumulator that is read
SIMPLE_UNITS = (Unit.FIXED, Unit.VARIABLE, Unit.BIND)  # units that do nothing beside their pipe
STEP_COLUMNS = 8  # columns of the steps in which operands are read ahead (docs/reference/fiber.md, section 6)


def has_bits(program: WarpProgram, machine: Machine) -> bool:
    """Tell whether registers have full and empty bits."""
    return program.mode == "fiber" and machine.fine_scheduling


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


def packed(register: Register | None, base: int) -> int:
    """Return a group of registers as a word (`layout_fiber.Y_DST`); 0 for none and for the zero register."""
    if register is None or (register.place is None and register.index == RZ):
        return 0
    number = register.index + {None: base, TENSOR: f.TENSOR_FIRST}.get(register.place, 0)
    own = register.place is None or register.place in (OWN, TENSOR)
    kind = f.GROUP_OWN if own else f.GROUP_PLACE + (register.place or 0)
    return register.count | number << 16 | kind << 32


def signed(word: int) -> int:
    """Return the number of 64 bits with a sign."""
    return word - (1 << 64) if word >> 63 else word


def numbers(group: int) -> range:
    """Return the numbers of the registers of a group."""
    first = group >> 16 & 0xFFFF
    return range(first, first + (group & 0xFFFF))


def _in_pool(program: WarpProgram, group: int) -> bool:
    """Tell whether a group has a register of the pool."""
    assert program.fiber is not None
    pool = range(program.fiber.pool_first, program.fiber.pool_limit)
    return any(number in pool or number >= f.TENSOR_FIRST for number in numbers(group))


def _touched(groups: list[int]) -> int:
    """Return the registers of groups, all words together (`layout_fiber.Y_TOUCHED`)."""
    return signed(sum(1 << place for place in {number % 64 for group in groups for number in numbers(group)}))


def _bind(bind: Bind) -> int:
    """Return what a bind adds to the instruction behind it."""
    consume = sum(1 << slot for slot in bind.consume)
    readers = sum(1 << part for part in bind.readers) or 1 << f.ANYBODY
    scoped = sum(1 << slot for slot in bind.scoped) << f.BIND_SCOPED_SHIFT
    return consume | f.BIND_HOLD * bind.hold | scoped | readers << f.BIND_READERS_SHIFT


def _tests(groups: list[int], base: int | None) -> list[tuple[int, int]]:
    """Return the words of bits of groups, and which bits (`layout_fiber.Y_TEST`).

    `base`: where the words are counted from, by the groups' places if None.
    """
    found: dict[int, int] = {}
    for group in groups:
        kind = group >> 32
        first = 0 if kind == f.GROUP_OWN else (kind - f.GROUP_PLACE) * f.PLACE_WORDS
        where = base if base is not None else f.TEST_OWN if kind == f.GROUP_OWN else f.TEST_ANY
        for number in numbers(group):
            word = (first + (number >> c.WORD_BITS)) << f.TEST_BASE_BITS | where
            found[word] = found.get(word, 0) | 1 << number % 64
    return [(word, signed(mask)) for word, mask in found.items()]


def _registers(row: Row, program: WarpProgram, machine: Machine, pc: int, base: int, uses: BitUses) -> None:
    """Fill in what bits and ports need to know."""
    instruction = program.instructions[pc]
    unit, matrix = OPCODES[instruction.op].unit, is_matrix(instruction.op)
    if len(instruction.src) > f.SOURCES:
        raise UnsupportedError(
            f"{instruction.op} at pc {pc} has {len(instruction.src)} sources; the engine takes up to {f.SOURCES}",
            where=where_is(program, pc),
        )
    row[f.Y_FLAGS] = (
        f.FLAG_MATRIX * matrix
        | f.FLAG_TESTS * (unit is not Unit.BUSY_BIT)
        | f.FLAG_GROUP * instruction.group
        | f.FLAG_TM * (instruction.op == "WMMA.TM")
    )
    row[f.Y_LATENCY] = timing_of(machine, instruction).latency_cycles
    row[f.Y_DST] = packed(instruction.dst, base)
    for slot, source in enumerate(instruction.src):
        row[f.Y_SOURCE + slot] = packed(source, base)
    operands = min(MATRIX_OPERANDS, len(instruction.src)) if matrix else len(instruction.src)
    row[f.Y_SOURCES] = operands
    row[f.Y_PORT_SLOTS] = min(operands, MATRIX_OPERANDS) if unit is Unit.TCGEN05_MMA else operands
    if matrix:
        third = len(instruction.src) > MATRIX_OPERANDS
        row[f.Y_ACCUMULATOR] = packed(instruction.src[MATRIX_OPERANDS] if third else instruction.dst, base)
    _tested(row, program, where_is(program, pc), uses)
    before = program.instructions[pc - 1].bind if pc else None
    row[f.Y_BIND] = _bind(before if before is not None else Bind())
    row[f.Y_FLAGS] |= f.FLAG_SIMPLE * (unit in SIMPLE_UNITS and _is_simple(row) and machine.busy_bits != "paper")
    if unit is Unit.BUSY_BIT:
        row[f.Y_BIND] = f.CHANGE_FULL * (instruction.bit == "full") | f.CHANGE_SET * instruction.set_bit


def _is_simple(row: Row) -> bool:
    """Tell whether an instruction of a pipe changes no bits but E of its destination, which nobody else changes."""
    flags, bound = int(row[f.Y_FLAGS]), int(row[f.Y_BIND])
    return bool(flags & f.FLAG_PLAIN and not flags & f.FLAG_MATRIX and not bound & (f.BIND_CONSUME | f.BIND_HOLD))


def _tested(row: Row, program: WarpProgram, where: SourceLocation | None, uses: BitUses) -> None:
    """Fill in what follows from the groups that an instruction reads and writes."""
    sources, accumulator = [int(row[f.Y_SOURCE + slot]) for slot in range(row[f.Y_SOURCES])], int(row[f.Y_ACCUMULATOR])
    dst = int(row[f.Y_DST])
    groups = [*sources, accumulator]
    row[f.Y_TOUCHED] = _touched([*groups, dst])
    row[f.Y_LOCAL_SLOTS] = sum(
        1 << slot
        for slot, group in enumerate(sources[: f.BIND_SLOTS])
        if group >> 32 == f.GROUP_OWN and uses.elsewhere.isdisjoint(numbers(group))
    )
    row[f.Y_FLAGS] |= (
        f.FLAG_READS * any(groups)
        | f.FLAG_READS_POOL * any(_in_pool(program, group) for group in groups)
        | f.FLAG_WRITES_POOL * _in_pool(program, dst)
        | f.FLAG_MAY_BE_FULL * (not uses.full.isdisjoint(numbers(dst)))
        | f.FLAG_PLAIN * uses.shared.isdisjoint(numbers(dst))
        | f.FLAG_PRIVATE * (uses.shared | uses.common).isdisjoint(numbers(dst))
        | f.FLAG_LOCAL * uses.elsewhere.isdisjoint(numbers(dst))
    )
    if not row[f.Y_FLAGS] & f.FLAG_TESTS:
        return
    parts = _tests(sources, None), _tests([accumulator], None), _tests([dst], f.TEST_FULL)
    tests = [test for part in parts for test in part]
    if len(tests) > f.TESTS:
        raise UnsupportedError(
            f"an instruction tests {len(tests)} words of bits; the engine takes {f.TESTS}", where=where
        )
    row[f.Y_TESTS] = sum(len(part) << i * f.TESTS_BITS for i, part in enumerate(parts))
    for i, (word, mask) in enumerate(tests):
        row[f.Y_TEST + 2 * i], row[f.Y_TEST + 2 * i + 1] = word, mask


def _port_reads(row: Row, kept: int, accumulator: int, where: SourceLocation | None) -> None:
    """Fill in which registers an X instruction reads through ports, by their words.

    `kept`: mask of slots that need none; `accumulator`: the group of accumulators that it reads there, 0 for none.
    """
    slots = range(row[f.Y_PORT_SLOTS])
    for shift, at, left_out in ((0, f.Y_PORT, 0), (f.TESTS_BITS, f.Y_PORT_REUSE, kept)):
        found: dict[int, int] = {}
        operands = [int(row[f.Y_SOURCE + slot]) for slot in slots if not left_out >> slot & 1]
        for group in (*operands, accumulator):
            for number in numbers(group):
                if number < f.TENSOR_FIRST:
                    word = number >> c.WORD_BITS | group >> 32 << f.PORT_PLACE_SHIFT
                    found[word] = found.get(word, 0) | 1 << number % 64
        if len(found) > f.PORT_READS:
            text = f"an instruction reads {len(found)} words of registers; the engine takes {f.PORT_READS}"
            raise UnsupportedError(text, where=where)
        row[f.Y_PORTS] |= len(found) << shift
        for i, (word, mask) in enumerate(found.items()):
            row[at + 2 * i], row[at + 2 * i + 1] = word, signed(mask)


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


def prepare_fiber(program: WarpProgram, machine: Machine, kept: list[int], base: dict[int, int]) -> NDArray[np.int64]:
    """Return the Y_ words of all rows.

    `kept`: mask of source slots of each that the reuse cache can hold; `base`: of the roles that reach it (`bases`).
    """
    rows = np.zeros((len(program.instructions), f.Y_WORDS), dtype=np.int64)
    signatures: list[object] = []
    uses = bit_uses(program, machine, base)
    for pc, instruction in enumerate(program.instructions):
        if program.mode == "fiber":
            _registers(rows[pc], program, machine, pc, base.get(pc, 0), uses)
        if is_remote(instruction):
            accumulator = int(rows[pc, f.Y_ACCUMULATOR]) if instruction.op == "HMMA" else 0
            _port_reads(rows[pc], kept[pc], accumulator, where_is(program, pc))
        unit = OPCODES[instruction.op].unit
        if unit is Unit.WEFT_MMA:
            _weft_matrix(rows[pc], program, machine, pc, signatures)
        elif unit is Unit.SET_FIBER_NUM:
            rows[pc, f.Y_FIBERS] = wefts_of(instruction.fibers) << 1 | instruction.all_scope
    return rows.reshape(-1)
