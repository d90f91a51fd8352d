"""Register read ports and the operand reuse cache of a subpartition (condition g, and e of the page)."""

from __future__ import annotations

from collections.abc import Callable

from heddle.ir.warp import Instruction, Register
from heddle.machine.spec import Machine
from heddle.sim.reference.registers import Physical, registers, simd_slots
from heddle.sim.reference.ticks import TICKS_PER_CYCLE, Server, ticks
from heddle.sim.reference.warp import Warp
from heddle.sim.result import Stall


class RegisterPorts:
    """One read port a bank. `slowed(cycles, cycle)`: ticks of reads beside the accumulators of an MMA."""

    def __init__(self, machine: Machine, branch_targets: set[int], slowed: Callable[[int, int], int]) -> None:
        self._machine = machine
        self._targets = branch_targets
        self._slowed = slowed
        self._banks = [Server() for _ in range(machine.register_banks)]
        self._cached: tuple[Warp, int, tuple[Register, ...]] | None = None  # warp, pc, slots of the last instruction

    def blocked(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        """Return DISPATCH_STALL while a port that the instruction needs is still taken in the next cycle."""
        for bank in self._reads_by_bank(warp, instruction):
            if not self.is_free(bank, cycle + 1):
                return Stall.DISPATCH_STALL
        return None

    def read(self, warp: Warp, instruction: Instruction, cycle: int) -> int:
        """Take the ports for an issue; return the extra cycles that its own bank conflicts cost."""
        by_bank = self._reads_by_bank(warp, instruction)
        for bank, reads in by_bank.items():
            self.serve(bank, cycle, reads)
        self.remember(warp, instruction)
        return max(0, *(self.cycles(reads) for reads in by_bank.values()), 1) - 1

    def remember(self, warp: Warp, instruction: Instruction) -> None:
        """Keep an instruction's slots for the reuse cache."""
        self._cached = (warp, warp.pc, instruction.src)

    def skip(self, warp: Warp) -> None:
        """Note an instruction that was predicated off: it read nothing."""
        self._cached = (warp, warp.pc, ())

    def is_free(self, bank: int, cycle: int) -> bool:
        """Tell whether the port of a bank is free within a cycle."""
        return self._banks[bank].is_free(cycle)

    def free(self, bank: int) -> int:
        """Return the next free time of a port, in ticks."""
        return self._banks[bank].free

    def serve(self, bank: int, cycle: int, reads: int) -> None:
        """Let the port of a bank read registers for an instruction that issues at `cycle`."""
        self._banks[bank].serve(cycle * TICKS_PER_CYCLE, self._slowed(self.cycles(reads), cycle))

    def fetch(self, bank: int, time: int, reads: int) -> None:
        """Let the port of a bank read operands of a weft's matrix instruction that starts at `time` (ticks)."""
        self._banks[bank].serve(time, ticks(self.cycles(reads)))

    def cycles(self, reads: int) -> int:
        """Return the cycles in which a port reads so many registers."""
        return -(-reads // self._machine.register_reads_per_bank_per_cycle)

    def bank(self, register: Physical) -> int:
        """Return the bank that holds a register."""
        return register.number % len(self._banks)

    def wanted(self, warp: Warp, instruction: Instruction) -> set[Physical]:
        """Return the vector registers that an instruction needs from ports, because the reuse cache lacks them."""
        slots = enumerate(simd_slots(instruction))
        groups = [group for slot, group in slots if not self._is_cached(warp, slot, group)]
        return {register for group in groups for register in registers(warp, group) if not register.tensor}

    def _reads_by_bank(self, warp: Warp, instruction: Instruction) -> dict[int, int]:
        """Return for each bank that is read the number of registers."""
        reads: dict[int, int] = {}
        for register in self.wanted(warp, instruction):
            reads[self.bank(register)] = reads.get(self.bank(register), 0) + 1
        return reads

    def _is_cached(self, warp: Warp, slot: int, group: Register) -> bool:
        if not self._machine.register_reuse_cache or self._cached is None or warp.pc in self._targets:
            return False
        last_warp, last_pc, last_slots = self._cached
        if last_warp is not warp or last_pc != warp.pc - 1 or slot >= len(last_slots) or group.count != 1:
            return False
        last = last_slots[slot]
        return last.reuse and last.count == 1 and registers(warp, last) == registers(warp, group)
