"""What programs with FIBER features add to the engine's state: registers, matrix operations, queues, groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_fiber import TENSOR_COLUMNS
from heddle.machine.spec import Machine
from heddle.sim.core import layout as c
from heddle.sim.core import layout_fiber as f
from heddle.sim.prepare_fiber import has_bits
from heddle.sim.state import Extent

Array = NDArray[np.int64]
REGISTER_UNIT = 4  # registers of a FIBER-thread in a subpartition are rounded up to quads
MOST_WARNINGS = 1024  # FIBER-threads whose unconsumed data are reported
WEFTS_OF_GROUP = 4
MOST_BROADCAST = f.WHEEL // 2  # cycles
BANK_COUNTS = (1, 2, 4)  # whole words of registers have the same banks


def vectors(program: WarpProgram) -> int:
    """Return the vector registers of a FIBER-thread in a subpartition."""
    registers = program.fiber.registers if program.fiber is not None else 0
    return -(-registers // REGISTER_UNIT) * REGISTER_UNIT


def columns(program: WarpProgram) -> int:
    """Return the groups of 32 columns of tensor memory of a FIBER-thread."""
    return program.tensor_memory_columns // TENSOR_COLUMNS if program.mode == "fiber" else 0


def quads(program: WarpProgram) -> int:
    """Return the groups of four wefts of a FIBER-thread."""
    return -(-program.warps_per_cta // WEFTS_OF_GROUP)


def place_fiber(extent: Extent, program: WarpProgram) -> None:
    """Reserve the regions of a program of mode fiber, or what a meeting needs in mode cuda-native."""
    if program.mode == "simt":
        return
    ctas = extent.sms * extent.slots
    extent.place("quads", ctas * quads(program) * f.G4_WORDS)
    if program.mode != "fiber":
        return
    accumulate = any(i.op == "HMMA" or OPCODES[i.op].unit in (Unit.WGMMA, Unit.WEFT_MMA) for i in program.instructions)
    contexts = extent.sms * c.SUBPARTITIONS * extent.bits
    extent.place("registers", ctas * f.THREAD_WORDS)
    extent.place("wheels", extent.sms * f.Z_WORDS)
    extent.place("clears", extent.sms * c.SUBPARTITIONS * f.D_WORDS)
    extent.place("operations", contexts * f.OPS * f.O_WORDS if accumulate else 0)
    extent.place("matrix_queues", extent.sms * c.SUBPARTITIONS * f.V_WORDS)
    extent.place("grants", extent.sms * f.A_WORDS)
    extent.place("warnings", (MOST_WARNINGS + 1) * f.N_WORDS)


def fill_fiber(state: Array, extent: Extent, program: WarpProgram, machine: Machine, rows: int) -> None:
    """Write what a program with FIBER features needs; `rows`: place of the third part of its rows."""
    if program.mode == "simt":
        return
    state[f.H_ROWS], state[f.H_SET] = rows, machine.set_fiber_num_cycles
    contexts = sum(min(c.CONTEXTS, extent.bits) for _ in range(c.SUBPARTITIONS)) * extent.sms
    state[c.H_FULL_LOG] += contexts * (2 + c.RUNS) + extent.sms * 8 * c.SUBPARTITIONS * f.QUEUED
    for number in range(extent.sms * extent.slots):
        cta = extent.base["ctas"] + number * c.C_WORDS
        state[cta + c.C_QUADS] = extent.base["quads"] + number * quads(program) * f.G4_WORDS
    if program.mode == "fiber":
        _fill_header(state, extent, program, machine)
        _fill_threads(state, extent, program)


def _fill_header(state: Array, extent: Extent, program: WarpProgram, machine: Machine) -> None:
    assert program.fiber is not None
    state[c.H_FIBER], state[c.H_BITS] = 1, has_bits(program, machine)
    _check_limits(machine)
    state[f.H_DELAY] = machine.busy_bit_broadcast_cycles
    state[f.H_VECTORS], state[f.H_COLUMNS] = vectors(program), columns(program)
    state[f.H_POOL_FIRST], state[f.H_POOL_LIMIT] = program.fiber.pool_first, program.fiber.pool_limit
    state[f.H_PAPER] = has_bits(program, machine) and machine.busy_bits == "paper"
    state[f.H_PORT_READS] = machine.register_reads_per_bank_per_cycle
    state[f.H_LEAST_TAKEN] = round(machine.tensor_port_share * (1 << c.TICK_BITS))
    state[f.H_QUEUES], state[f.H_QUEUE_DEPTH] = extent.base["matrix_queues"], machine.matrix_queue_depth
    state[f.H_GRANTS] = extent.base["grants"]
    for bank in range(machine.register_banks):
        mask = sum(1 << register for register in range(bank, f.WHEEL, machine.register_banks))
        state[f.H_BANK_MASKS + bank] = mask - (1 << 64) if mask >> 63 else mask
    state[f.H_WARNINGS], state[f.H_WARNING_ROOM] = extent.base["warnings"], MOST_WARNINGS
    for sm in range(extent.sms):
        state[extent.base["grants"] + sm * f.A_WORDS + f.A_CYCLE] = -1
        for quarter in range(c.SUBPARTITIONS):
            sub = extent.sm(sm) + c.S_QUARTERS + quarter * c.Q_WORDS
            state[sub + c.Q_QUEUE] = extent.base["matrix_queues"] + (sm * c.SUBPARTITIONS + quarter) * f.V_WORDS
            state[sub + c.Q_CLEARS] = extent.base["clears"] + (sm * c.SUBPARTITIONS + quarter) * f.D_WORDS
            state[sub + c.Q_CLEARS_NEXT] = c.INF
        state[extent.sm(sm) + c.S_WHEEL] = extent.base["wheels"] + sm * f.Z_WORDS
        state[extent.sm(sm) + c.S_DUE] = c.INF


def _check_limits(machine: Machine) -> None:
    """Raise UserError for what the engine's tables do not hold."""
    if not 1 <= machine.matrix_queue_depth <= c.MATRIX_DEPTH:
        raise UserError(f"matrix_queue_depth = {machine.matrix_queue_depth}; the engine takes 1 to {c.MATRIX_DEPTH}")
    if machine.busy_bit_broadcast_cycles > MOST_BROADCAST:
        delay = machine.busy_bit_broadcast_cycles
        raise UserError(f"busy_bit_broadcast_cycles = {delay}; the engine takes up to {MOST_BROADCAST}")
    if machine.register_banks not in BANK_COUNTS:
        raise UserError(f"register_banks = {machine.register_banks}; in mode fiber the engine takes {BANK_COUNTS}")


def _fill_threads(state: Array, extent: Extent, program: WarpProgram) -> None:
    for sm, slot, warp in extent.contexts():
        first = extent.base["registers"] + (sm * extent.slots + slot) * f.THREAD_WORDS
        at = extent.warp(sm, slot, warp)
        state[extent.cta(sm, slot) + c.C_REGISTERS] = state[at + c.W_REGISTERS] = first
        place = state[at + c.W_PLACE] = warp % c.SUBPARTITIONS
        state[at + c.W_VIEW] = first + place * f.BIT_WORDS
        state[at + c.W_VIEW_OWN] = state[at + c.W_VIEW] + place * f.PLACE_WORDS
        state[at + c.W_FULL_OWN] = first + place * f.PLACE_WORDS + f.ROW_ANY * f.BIT_WORDS
        context = (at - extent.base["warps"]) // c.W_WORDS
        state[at + c.W_OPS] = extent.base["operations"] + context * f.OPS * f.O_WORDS
