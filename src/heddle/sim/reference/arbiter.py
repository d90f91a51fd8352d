"""The arbiter of the read ports of an SM, for sources with absolute addresses (fiber.md, section 5)."""

from __future__ import annotations

from heddle.ir.warp import Instruction
from heddle.sim.reference.ports import RegisterPorts
from heddle.sim.reference.registers import Physical
from heddle.sim.reference.warp import Warp

Port = tuple[int, int]
"""Subpartition and bank."""


class Arbiter:
    """Grants an instruction all ports that it needs or none; a register that a port already gives is shared."""

    def __init__(self, ports: list[RegisterPorts]) -> None:
        self._ports = ports
        self._cycle = -1
        self._given: dict[Port, set[tuple[int, Physical]]] = {}  # in this cycle: CTA slot and register
        self.denials = 0
        self.shared = 0  # register reads that no port was charged for
        self.crossed = 0  # register reads of another subpartition

    def grant(self, warp: Warp, instruction: Instruction, cycle: int) -> int | None:
        """Take the ports and return the extra cycles of the instruction's own conflicts; None if it is denied."""
        if cycle != self._cycle:
            self._cycle, self._given = cycle, {}
        wanted = self._wanted(warp, instruction)
        free = {port for port in wanted if self._ports[port[0]].is_free(port[1], cycle)}
        if any(port not in free and not wanted[port] <= self._given.get(port, set()) for port in wanted):
            self.denials += 1
            return None
        for part, bank in sorted(free):
            self._ports[part].serve(bank, cycle, len(wanted[part, bank]))
            self._given.setdefault((part, bank), set()).update(wanted[part, bank])
        self.shared += sum(len(registers) for port, registers in wanted.items() if port not in free)
        self.crossed += sum(len(registers) for port, registers in wanted.items() if port[0] != warp.subpartition)
        self._ports[warp.subpartition].remember(warp, instruction)
        return max(0, *(self._ports[part].cycles(len(wanted[part, bank])) for part, bank in wanted), 1) - 1

    def _wanted(self, warp: Warp, instruction: Instruction) -> dict[Port, set[tuple[int, Physical]]]:
        """Return the registers that the instruction asks of each port."""
        wanted: dict[Port, set[tuple[int, Physical]]] = {}
        for register in self._ports[warp.subpartition].wanted(warp, instruction):
            port = register.subpartition, self._ports[register.subpartition].bank(register)
            wanted.setdefault(port, set()).add((warp.cta.slot, register))
        return wanted
