"""Barriers by arrival count: named barriers of a CTA (BARRIER_SYNC, BARRIER_ARRIVE) and the cluster barrier."""

from __future__ import annotations

from heddle.ir.warp import Instruction
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import NEVER, Warp
from heddle.sim.result import Stall


class CountedBarrier:
    """Counts warps; when enough have arrived the waiting ones go on and it starts anew."""

    def __init__(self) -> None:
        self._arrived = 0
        self._waiting: list[tuple[Warp, int]] = []  # warp, its next_ok without the barrier

    def wait(self, warp: Warp) -> None:
        """Stop the warp until the barrier opens."""
        self._waiting.append((warp, warp.next_ok))
        warp.hold(NEVER, Stall.BARRIER)

    def arrive(self, needed: int, cycle: int, cost: int) -> None:
        """Count an arrival; if it is the last of `needed`, open `cost` cycles later."""
        self._arrived += 1
        if self._arrived < needed:
            return
        for warp, own_next_ok in self._waiting:
            warp.next_ok = max(own_next_ok, cycle + max(1, cost))
        self._arrived = 0
        self._waiting = []


class BarrierSync(UnitModel):
    """BARRIER_SYNC."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        warp.cta.named_barrier(instruction.barrier_id).wait(warp)
        self.arrive(warp, instruction, cycle)

    def arrive(self, warp: Warp, instruction: Instruction, cycle: int) -> None:
        """Arrive without waiting."""
        cost = self.machine.named_barrier_cycles + instruction.warps * self.machine.named_barrier_cycles_per_warp
        warp.cta.named_barrier(instruction.barrier_id).arrive(instruction.warps, cycle, cost)


class BarrierArrive(BarrierSync):
    """BARRIER_ARRIVE."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        self.arrive(warp, instruction, cycle)


class ClusterSync(UnitModel):
    """CLUSTER_SYNC."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        barrier = warp.cta.cluster.barrier
        barrier.wait(warp)
        barrier.arrive(instruction.warps, cycle, self.machine.cluster_barrier_cycles)
