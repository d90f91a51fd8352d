"""What feeds instructions: bytes read from shared memory and through the register read ports, by what was executed.

Counted are issues, each with the bytes that it reads: no time is computed. A register is 32 lanes x 4 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.ir.dtypes import dtype_bytes
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Instruction, Register, WarpProgram
from heddle.ir.warp_fiber import TENSOR
from heddle.machine.spec import Machine
from heddle.metrics._pipes import issues_by_pc
from heddle.sim.launch_work import role_code
from heddle.sim.prepare_fiber import bases, is_remote
from heddle.sim.prepare_ports import port_reads
from heddle.sim.result import SimResult

BANK_BITS = 8  # of a bank in `PortReads`
REGISTER_BYTES = 128
GROUP = 4
"""Warps of a warp-group instruction, wefts of a group."""
SHARED_LOADS = ("LDS", "LDSM")


@dataclass(frozen=True, slots=True)
class Reads:
    """What one issue reads: registers, and cycles of the port that it needs longest."""

    registers: float
    cycles: float


def supply(result: SimResult, program: WarpProgram, machine: Machine) -> dict[str, int]:
    """Return `smem_read_bytes`, `register_read_bytes` and `read_port_cycles` of the simulated SMs.

    Shared memory: loads, and operands that products fetch there; not the stores of bulk copies. Registers: operands of
    all instructions but those that the operand cache could hold, and operands and accumulators of products. Port
    cycles: of each instruction on the port that it needs longest; of a group of wefts each counts the port of B, so
    that the sum may exceed one a cycle and subpartition.
    """
    base = bases(program) if program.mode == "fiber" else {}
    acting = acting_shares(program)
    shared = registers = cycles = 0.0
    for pc, issued in enumerate(issues_by_pc(result)):
        if issued:
            times = int(issued) * acting.get(pc, 1.0)
            reads = _reads(program, machine, pc, base.get(pc, 0))
            shared += times * shared_read_bytes(program.instructions[pc])
            registers += times * reads.registers
            cycles += times * reads.cycles
    return {
        "smem_read_bytes": round(shared),
        "register_read_bytes": round(registers * REGISTER_BYTES),
        "read_port_cycles": round(cycles),
    }


def acting_shares(program: WarpProgram) -> dict[int, float]:
    """Return the share of the issues of an instruction that are not predicated off, where that is not all."""
    found: dict[int, float] = {}
    for role in program.roles:
        for pc in range(*role_code(program, role)):
            by = program.instructions[pc].by
            if by != "warp":
                found[pc] = 1 / GROUP if by == "group" else 1 / role.warps
    return found


def shared_read_bytes(instruction: Instruction) -> float:
    """Return the bytes of shared memory that one issue reads."""
    if instruction.op in SHARED_LOADS:
        return instruction.bytes
    unit = OPCODES[instruction.op].unit
    if unit not in (Unit.WGMMA, Unit.TCGEN05_MMA, Unit.WEFT_MMA) or instruction.shape is None:
        return 0
    m, n, k = instruction.shape
    a, b = (size * k * dtype_bytes(instruction.dtype) for size in (m, n))
    if unit is Unit.WEFT_MMA:
        return a * (instruction.form[0] == "s") + b * (instruction.form[1] == "s") / _fetchers(instruction)
    whole = b + a * (instruction.form == "ss")
    return whole / GROUP if unit is Unit.WGMMA else whole  # a pair fetches half in each of its SMs


def _reads(program: WarpProgram, machine: Machine, pc: int, base: int) -> Reads:
    """Return what one issue reads; a register that several slots name is read once."""
    instruction = program.instructions[pc]
    unit = OPCODES[instruction.op].unit
    banks, ports = machine.register_banks, machine.register_reads_per_bank_per_cycle
    if unit is Unit.WEFT_MMA:
        return _weft_reads(instruction, banks * ports)
    reads = port_reads(program, machine, pc, set(), base)
    packed = reads.plain if is_remote(instruction) else reads.reuse
    by_bank = [packed >> BANK_BITS * bank & 0xFF for bank in range(banks)]
    accumulators = _size(_accumulator(instruction)) if unit is Unit.WGMMA else 0
    return Reads(ports * sum(by_bank) + accumulators, max(by_bank) + accumulators / (banks * ports))


def _weft_reads(instruction: Instruction, ports: int) -> Reads:
    """Return the reads of one weft of a product; all of a group wait for the port from which B comes."""
    a, b = instruction.src[:2]
    in_a = _size(a) * (instruction.form[0] == "r")
    in_b = _size(b) * (instruction.form[1] == "r")
    accumulators = _size(_accumulator(instruction))
    remote = b.place is not None and b.place >= 0
    shared_by = _fetchers(instruction) if remote else 1
    return Reads(in_a + in_b / shared_by + accumulators, (in_a + in_b + accumulators) / ports)


def _fetchers(instruction: Instruction) -> int:
    """Return how many wefts share one fetch of B."""
    return GROUP if instruction.group else 1


def _accumulator(instruction: Instruction) -> Register | None:
    """Return the accumulator that a matrix instruction reads: the third slot if there is one, else the destination."""
    return instruction.src[2] if len(instruction.src) > 2 else instruction.dst


def _size(register: Register | None) -> int:
    """Return the vector registers of a group: none of the zero register and of tensor memory."""
    if register is None or register.place == TENSOR or (register.place is None and register.index == RZ):
        return 0
    return register.count
