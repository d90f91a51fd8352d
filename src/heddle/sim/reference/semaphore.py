"""Global semaphores: SEM_RELEASE and SEM_ACQUIRE."""

from __future__ import annotations

from heddle.ir.warp import Instruction
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.result import Stall


class Semaphores:
    """Values of all global semaphores by index, 0 at first."""

    def __init__(self) -> None:
        self._values: dict[int, int] = {}

    def value(self, index: int) -> int:
        """Return the current value."""
        return self._values.get(index, 0)

    def add_one(self, index: int) -> None:
        """Count a release."""
        self._values[index] = self.value(index) + 1


class SemaphoreRelease(UnitModel):
    """SEM_RELEASE: takes effect when the earlier stores of the CTA are visible."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        assert instruction.semaphore is not None
        self.release_default(warp, instruction, cycle, extra)
        index = warp.attribute(instruction.semaphore)
        when = max(cycle + max(1, self.machine.l2_near_latency_cycles), warp.cta.stores_visible)
        self.sm.chip.events.at(when, lambda now: self.sm.chip.semaphores.add_one(index))


class SemaphoreAcquire(UnitModel):
    """SEM_ACQUIRE: waits in mode `chip` only; in the others most releasing CTAs are absent."""

    def waits(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        assert instruction.semaphore is not None
        value = self.sm.chip.semaphores.value(warp.attribute(instruction.semaphore))
        waiting = self.sm.chip.setup.mode == "chip" and value < instruction.pending
        return Stall.SEMAPHORE if waiting else None

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        warp.hold(cycle + self.machine.l2_near_latency_cycles, Stall.SEMAPHORE)
