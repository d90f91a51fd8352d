"""Register reads of each instruction by bank, with and without what the reuse cache can hold (engine.md, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import UserError
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Instruction, Register, WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.core import layout as c

MATRIX_OPERANDS = 2  # source slots of a matrix instruction that are read through the ports


@dataclass(frozen=True, slots=True)
class PortReads:
    """Reads of each bank, eight bits a bank, without and with reuse; `own` packs the own conflicts (layout.P_OWN)."""

    plain: int
    reuse: int
    own: int


def _slots(instruction: Instruction) -> tuple[Register, ...]:
    """Return the source slots that are read through the ports."""
    unit = OPCODES[instruction.op].unit
    matrix = instruction.op == "HMMA" or unit in (Unit.WGMMA, Unit.TCGEN05_MMA)
    return instruction.src[:MATRIX_OPERANDS] if matrix else instruction.src


def _reads(slots: list[Register], machine: Machine) -> list[int]:
    """Return the reads of each bank that these slots need; a register that several name is read once."""
    registers = {slot.index + i for slot in slots if slot.index != RZ for i in range(slot.count)}
    counts = [0] * machine.register_banks
    for register in registers:
        counts[register % machine.register_banks] += 1
    return [-(-count // machine.register_reads_per_bank_per_cycle) for count in counts]


def _kept(previous: Instruction, slots: tuple[Register, ...]) -> set[int]:
    """Return the slots whose register the reuse cache holds if `previous` issued just before."""
    return {
        i
        for i, (before, now) in enumerate(zip(previous.src, slots, strict=False))
        if before.reuse and before.count == now.count == 1 and before.index == now.index
    }


def port_reads(program: WarpProgram, machine: Machine, pc: int, targets: set[int]) -> PortReads:
    """Return the port reads of the instruction at `pc`."""
    if machine.register_banks > c.BANKS:
        raise UserError(f"{machine.name} has {machine.register_banks} register banks; the engine takes up to {c.BANKS}")
    slots = _slots(program.instructions[pc])
    plain = _reads(list(slots), machine)
    reuse, possible = plain, False
    if machine.register_reuse_cache and pc > 0 and pc not in targets:
        kept = _kept(program.instructions[pc - 1], slots)
        possible = bool(kept)
        reuse = _reads([slot for i, slot in enumerate(slots) if i not in kept], machine)

    def packed(counts: list[int]) -> int:
        return sum(count << (8 * bank) for bank, count in enumerate(counts))

    own = max(0, max(plain) - 1) | max(0, max(reuse) - 1) << 8 | possible << 16
    return PortReads(packed(plain), packed(reuse), own)
