"""Register read ports and the operand reuse cache of a subpartition (condition g, and e of the page)."""

from __future__ import annotations

from collections.abc import Callable

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Instruction, Register
from heddle.machine.spec import Machine
from heddle.sim.reference.ticks import TICKS_PER_CYCLE, Server, ticks
from heddle.sim.reference.warp import Warp
from heddle.sim.result import Stall

_MATRIX_UNITS = (Unit.WGMMA, Unit.TCGEN05_MMA)
_MATRIX_OPERANDS = 2  # the first slots of a matrix instruction; the others are accumulators


class RegisterPorts:
    """One read port a bank. `mma_active(cycle)` tells whether a register-accumulator MMA runs on the SM."""

    def __init__(self, machine: Machine, branch_targets: set[int], mma_active: Callable[[int], bool]) -> None:
        self._machine = machine
        self._targets = branch_targets
        self._mma_active = mma_active
        self._banks = [Server() for _ in range(machine.register_banks)]
        self._cached: tuple[Warp, int, tuple[Register, ...]] | None = None  # warp, pc, slots of the last instruction

    def blocked(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        """Return DISPATCH_STALL while a port that the instruction needs is still taken in the next cycle."""
        for bank in self._cycles_by_bank(warp, instruction):
            if not self._banks[bank].is_free(cycle + 1):
                return Stall.DISPATCH_STALL
        return None

    def read(self, warp: Warp, instruction: Instruction, cycle: int) -> int:
        """Take the ports for an issue; return the extra cycles that its own bank conflicts cost."""
        by_bank = self._cycles_by_bank(warp, instruction)
        share = self._machine.tensor_port_share if self._mma_active(cycle) else 0.0
        for bank, cycles in by_bank.items():
            self._banks[bank].serve(cycle * TICKS_PER_CYCLE, ticks(cycles / (1.0 - share)))
        self._cached = (warp, warp.pc, instruction.src)
        return max(0, *by_bank.values(), 1) - 1

    def skip(self, warp: Warp) -> None:
        """Note an instruction that was predicated off: it read nothing."""
        self._cached = (warp, warp.pc, ())

    def _cycles_by_bank(self, warp: Warp, instruction: Instruction) -> dict[int, int]:
        """Return for each bank that is read the cycles that its port needs."""
        registers: set[int] = set()
        for slot, group in enumerate(self._slots(instruction)):
            if group.index != RZ and not self._is_cached(warp, slot, group):
                registers |= set(range(group.index, group.index + group.count))
        cycles = {}
        for bank in sorted({register % len(self._banks) for register in registers}):
            reads = sum(register % len(self._banks) == bank for register in registers)
            cycles[bank] = -(-reads // self._machine.register_reads_per_bank_per_cycle)
        return cycles

    def _slots(self, instruction: Instruction) -> tuple[Register, ...]:
        matrix = instruction.op == "HMMA" or OPCODES[instruction.op].unit in _MATRIX_UNITS
        return instruction.src[:_MATRIX_OPERANDS] if matrix else instruction.src

    def _is_cached(self, warp: Warp, slot: int, group: Register) -> bool:
        if not self._machine.register_reuse_cache or self._cached is None or warp.pc in self._targets:
            return False
        last_warp, last_pc, last_slots = self._cached
        if last_warp is not warp or last_pc != warp.pc - 1 or slot >= len(last_slots) or group.count != 1:
            return False
        last = last_slots[slot]
        return last.reuse and last.count == 1 and last.index == group.index
