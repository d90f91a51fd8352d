"""Tensor memory accesses of a subpartition: TMEM_LOAD and TMEM_STORE."""

from __future__ import annotations

from abc import abstractmethod

from heddle.ir.warp import Instruction
from heddle.sim.reference.ticks import TICKS_PER_CYCLE, Server, duration, floor_cycles
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp


class TensorMemoryUnit(UnitModel):
    """One server a subpartition, for loads and stores; `bytes_per_cycle` of the machine are for the whole SM."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        rate = self.bytes_per_cycle() / self.machine.subpartitions
        length = duration(instruction.bytes, rate)
        start = self.server(warp).serve(cycle * TICKS_PER_CYCLE, length)
        self.release_write(warp, instruction, floor_cycles(start + length) + self.machine.tensor_memory_latency_cycles)
        released = self.default_read_release(cycle, extra)
        self.release_read(warp, instruction, released, self.operands_read(released, floor_cycles(start + length)))

    def operands_read(self, released: int, end: int) -> int:
        """Return when the last operand has been read, for a transfer that ends at `end`."""
        return released

    def server(self, warp: Warp) -> Server:
        """Return the server of the warp's subpartition."""
        return self.sm.tensor_memory[warp.subpartition]

    @abstractmethod
    def bytes_per_cycle(self) -> int:
        """Return the rate of the SM."""


class TensorMemoryLoad(TensorMemoryUnit):
    """TMEM_LOAD: its columns have been read when the transfer is over."""

    def operands_read(self, released: int, end: int) -> int:
        return max(released, end)

    def bytes_per_cycle(self) -> int:
        return self.machine.tensor_memory_read_bytes_per_cycle


class TensorMemoryStore(TensorMemoryUnit):
    """TMEM_STORE."""

    def bytes_per_cycle(self) -> int:
        return self.machine.tensor_memory_write_bytes_per_cycle
