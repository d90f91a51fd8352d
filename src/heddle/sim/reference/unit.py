"""What every unit of the SM offers to the issue logic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from heddle.ir.warp import Instruction
from heddle.sim.reference.warp import Warp
from heddle.sim.result import Stall

if TYPE_CHECKING:
    from heddle.sim.reference.sm import Sm


class UnitModel(ABC):
    """A unit: its own condition (d), a place in its queue (e), and what an issue does."""

    def __init__(self, sm: Sm) -> None:
        self.sm = sm
        self.machine = sm.machine

    def waits(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        """Return the stall reason while the unit's own condition fails, else None."""
        return None

    def full(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        """Return the stall reason while the unit's queue has no place, else None."""
        return None

    @abstractmethod
    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        """Apply an instruction that issues at `cycle`; `extra` cycles are its own bank conflicts (e of the page)."""

    def release_read(self, warp: Warp, instruction: Instruction, cycle: int, consumed_cycle: int | None = None) -> None:
        """Release the read barrier at `cycle`; unless told otherwise the operands have been consumed then."""
        warp.release(instruction.control.read_barrier, cycle, self.reason(instruction))
        if warp.operation is not None:
            warp.operation.reads_end(cycle if consumed_cycle is None else consumed_cycle)

    def release_write(self, warp: Warp, instruction: Instruction, cycle: int) -> None:
        """Release the write barrier at `cycle`, from which the result is there."""
        warp.release(instruction.control.write_barrier, cycle, self.reason(instruction))
        if warp.operation is not None:
            warp.operation.writes_end(cycle)

    def release_default(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        """Release both barriers of an instruction whose unit says nothing else: write-back L after issue."""
        latency = self.sm.chip.timing(instruction).latency_cycles
        self.release_write(warp, instruction, cycle + extra + latency)
        self.release_read(warp, instruction, self.default_read_release(cycle, extra))

    def reason(self, instruction: Instruction) -> Stall:
        """Return the stall reason of a warp that waits for a counter of this unit."""
        return Stall.SHORT_SCOREBOARD

    def default_read_release(self, cycle: int, extra: int) -> int:
        """Return when operands have been read where the page says nothing else."""
        return cycle + extra + 2
