"""Register reads of each instruction by bank, with and without what the reuse cache can hold (engine.md, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import UserError
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Instruction, Register, WarpProgram
from heddle.ir.warp_fiber import TENSOR
from heddle.machine.spec import Machine
from heddle.sim.core import layout as c

MATRIX_OPERANDS = 2  # source slots of a matrix instruction; a third is the accumulator that is read
UNREAD = (Unit.WEFT_MMA, Unit.BUSY_BIT)  # a weft's matrix instruction reads when it starts; a bit's register is named


@dataclass(frozen=True, slots=True)
class PortReads:
    """Reads of each bank, eight bits a bank, without and with reuse; `own` packs the own conflicts (layout.P_OWN).

    `kept`: mask of the slots that the reuse cache can hold.
    """

    plain: int
    reuse: int
    own: int
    kept: int


def _slots(instruction: Instruction) -> tuple[Register, ...]:
    """Return the slots that are read through the ports; mma.sync reads its accumulators, too."""
    unit = OPCODES[instruction.op].unit
    if unit in UNREAD:
        return ()
    if instruction.op == "HMMA":
        return instruction.src if len(instruction.src) > MATRIX_OPERANDS else _with_destination(instruction)
    matrix = unit in (Unit.WGMMA, Unit.TCGEN05_MMA)
    return instruction.src[:MATRIX_OPERANDS] if matrix else instruction.src


def _with_destination(instruction: Instruction) -> tuple[Register, ...]:
    return instruction.src if instruction.dst is None else (*instruction.src, instruction.dst)


def _number(slot: Register, base: int) -> int:
    """Return the first register that a slot of the weft's own subpartition names."""
    return slot.index + base if slot.place is None else slot.index


def _reads(slots: list[Register], machine: Machine, base: int) -> list[int]:
    """Return the reads of each bank that these slots need; a register that several name is read once."""
    read = [slot for slot in slots if slot.place != TENSOR and not _is_zero(slot)]
    registers = {_number(slot, base) + i for slot in read for i in range(slot.count)}
    counts = [0] * machine.register_banks
    for register in registers:
        counts[register % machine.register_banks] += 1
    return [-(-count // machine.register_reads_per_bank_per_cycle) for count in counts]


def _is_zero(slot: Register) -> bool:
    return slot.place is None and slot.index == RZ


def _kept(previous: Instruction, slots: tuple[Register, ...], base: int) -> set[int]:
    """Return the slots whose register the reuse cache holds if `previous` issued just before."""
    return {
        i
        for i, (before, now) in enumerate(zip(previous.src, slots, strict=False))
        if before.reuse and before.count == now.count == 1 and _place(before, base) == _place(now, base)
    }


def _place(slot: Register, base: int) -> tuple[int, int]:
    """Return what tells whether two slots name the same register: -1 is the weft's own subpartition."""
    if _is_zero(slot):
        return -1, -1
    return (-1 if slot.place is None else slot.place), _number(slot, base)


def port_reads(
    program: WarpProgram, machine: Machine, pc: int, targets: set[int], base: int = 0, *, remote: bool = False
) -> PortReads:
    """Return the port reads of the instruction at `pc`, for a role's `base`; none if the arbiter decides (`remote`)."""
    if machine.register_banks > c.BANKS:
        raise UserError(f"{machine.name} has {machine.register_banks} register banks; the engine takes up to {c.BANKS}")
    slots = _slots(program.instructions[pc])
    plain = _reads([] if remote else list(slots), machine, base)
    reuse, kept = plain, set[int]()
    if machine.register_reuse_cache and pc > 0 and pc not in targets:
        kept = _kept(program.instructions[pc - 1], slots, base)
        if not remote:
            reuse = _reads([slot for i, slot in enumerate(slots) if i not in kept], machine, base)

    def packed(counts: list[int]) -> int:
        return sum(count << (8 * bank) for bank, count in enumerate(counts))

    own = max(0, max(plain) - 1) | max(0, max(reuse) - 1) << 8 | bool(kept) << 16
    return PortReads(packed(plain), packed(reuse), own, sum(1 << slot for slot in kept))
