"""mbarriers in shared memory: MBARRIER_EXPECT, MBARRIER_ARRIVE, MBARRIER_WAIT, and signals from other units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.errors import UserError
from heddle.ir.warp import BarrierRef, Instruction
from heddle.sim.reference.events import Action, Events
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.result import Stall

if TYPE_CHECKING:
    from heddle.sim.reference.cta import Cta


class Mbarrier:
    """Counts arrivals and expected bytes; a phase completes when both are met."""

    def __init__(self, arrivals: int, completed: Action) -> None:
        self._needed = arrivals
        self._completed = completed  # called with the cycle of each phase completion
        self.arrived = 0
        self.expected_bytes = 0
        self.parity = 0

    def arrive(self, now: int) -> None:
        """Count an arrival that takes effect now."""
        self.arrived += 1
        self._test(now)

    def expect(self, amount: int) -> None:
        """Expect bytes; this completes no phase by itself."""
        self.expected_bytes += amount

    def land(self, amount: int, now: int) -> None:
        """Count bytes that have landed."""
        self.expected_bytes -= amount
        self._test(now)

    def _test(self, now: int) -> None:
        if self.arrived >= self._needed and self.expected_bytes == 0:
            self.arrived = 0
            self.parity ^= 1
            self._completed(now)


def signalled(warp: Warp, barrier: BarrierRef) -> list[Cta]:
    """Return the CTAs whose barrier is meant: the warp's own, the leader's, the peer's, or all of the cluster."""
    ctas = warp.cta.cluster.ctas
    if barrier.cta == "peer":
        return [peer_of(warp)]
    return {"own": [warp.cta], "leader": [ctas[0]], "all": ctas}[barrier.cta]


def peer_of(warp: Warp) -> Cta:
    """Return the other CTA of the pair of ranks 2i and 2i + 1."""
    return warp.cta.cluster.ctas[warp.cta.rank ^ 1]


def element(owner: Cta, warp: Warp, barrier: BarrierRef) -> Mbarrier:
    """Return the mbarrier of `owner` that a warp means now: its ring's stage plus the offset, or the offset."""
    elements = owner.mbarriers[barrier.name]
    index = barrier.offset
    if barrier.ring is not None:
        index = (warp.stage(barrier.ring) + barrier.offset) % warp.cta.cluster.chip.ring_depth[barrier.ring]
    if not 0 <= index < len(elements):
        raise UserError(f"element {index} of barrier {barrier.name!r} at pc {warp.pc}; it has {len(elements)} elements")
    return elements[index]


def remote_cycles(warp: Warp, owner: Cta) -> int:
    """Return how much later a signal reaches another CTA."""
    return 0 if owner is warp.cta else warp.cta.sm.machine.cluster_remote_cycles


def landing(barrier: Mbarrier, amount: int) -> Action:
    """Return the effect of bytes that land."""
    return lambda now: barrier.land(amount, now)


def signal(events: Events, warp: Warp, instruction: Instruction, cycle: int) -> None:
    """Arrive at `cycle` (later in another CTA) on the barriers that the instruction names."""
    assert instruction.barrier is not None
    for owner in signalled(warp, instruction.barrier):
        barrier = element(owner, warp, instruction.barrier)
        events.at(cycle + remote_cycles(warp, owner), barrier.arrive)


class MbarrierArrive(UnitModel):
    """MBARRIER_ARRIVE and MBARRIER_EXPECT: bytes are expected at once, the arrival takes effect later."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        signal(self.sm.chip.events, warp, instruction, cycle + max(1, self.machine.mbarrier_arrive_cycles))


class MbarrierExpect(MbarrierArrive):
    """MBARRIER_EXPECT."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        assert instruction.barrier is not None
        for owner in signalled(warp, instruction.barrier):
            element(owner, warp, instruction.barrier).expect(instruction.bytes)
        super().issue(warp, instruction, cycle, extra)


class MbarrierWait(UnitModel):
    """MBARRIER_WAIT: the phase with the asked parity must be complete."""

    def waits(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        assert instruction.barrier is not None
        asked = warp.phase(instruction.barrier.ring) ^ instruction.barrier.flip
        (owner,) = signalled(warp, instruction.barrier)
        return None if element(owner, warp, instruction.barrier).parity != asked else Stall.MBARRIER

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        warp.hold(cycle + self.machine.mbarrier_wait_cycles, Stall.MBARRIER)
