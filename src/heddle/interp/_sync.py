"""What barriers and semaphores teach: the edges of happens-before between warps."""

from __future__ import annotations

from typing import Any

from heddle.errors import InternalError
from heddle.interp._boxes import element_of
from heddle.interp._clocks import Knowledge, Layout, Source
from heddle.interp._effects import Doing
from heddle.interp._warps import Cta, House, Meeting, Warp
from heddle.ir.warp import BarrierRef, Instruction, WarpProgram


class PhaseBarriers:
    """Mbarriers of all CTAs."""

    def __init__(self, program: WarpProgram, house: House) -> None:
        self.program, self.house = program, house
        self.names = [barrier.name for barrier in program.barriers]
        self.depths = {ring.name: ring.depth for ring in program.rings}

    def arrive(self, warp: Warp, instruction: Instruction, knowledge: Knowledge) -> None:
        """An arrival that carries `knowledge`, on every barrier that the instruction signals."""
        ref = _barrier_of(instruction)
        for cta in _owners(ref, warp.cta):
            self.house.barrier(cta, ref.name, self._element(ref, warp)).arrive(knowledge)

    def wait(self, warp: Warp, instruction: Instruction) -> None:
        """A wait has passed: the warp knows what all completed phases carried."""
        ref = _barrier_of(instruction)
        for cta in _owners(ref, warp.cta):
            warp.knowledge.join(self.house.barrier(cta, ref.name, self._element(ref, warp)).knowledge)

    def complete(self, record: tuple[Any, ...]) -> None:
        """A phase completes (BARRIER record)."""
        _, sm, slot, _, _, _, begin, _, index, element, _ = record
        cluster = self.house.living.get((sm // self.house.size, slot))
        if cluster is None:
            return  # the last phases of a CTA may complete after its warps have ended
        if not 0 <= index < len(self.names):
            raise InternalError(
                f"a phase of barrier {index} completes at cycle {begin}; the program has no such barrier"
            )
        self.house.barrier(cluster.ctas[sm % self.house.size], self.names[index], element).complete()

    def mark_copy(self, doing: Doing, instruction: Instruction, receiver: Cta) -> None:
        """A bulk copy has landed: it is known to be finished with the current phase of the barrier that it signals."""
        if instruction.barrier is None:
            return
        ref = instruction.barrier
        owner = receiver.cluster.ctas[0] if ref.cta == "leader" else receiver
        barrier = self.house.barrier(owner, ref.name, element_of(ref, doing.stages, self.depths))
        doing.component, doing.value = barrier.component, barrier.completed + 1

    def _element(self, ref: BarrierRef, warp: Warp) -> int:
        return element_of(ref, warp.rings, self.depths)


class Meetings:
    """Named barriers and cluster barriers."""

    def __init__(self, house: House, layout: Layout) -> None:
        self.house, self.layout = house, layout

    def named(self, warp: Warp, instruction: Instruction, *, waits: bool) -> None:
        """BAR.SYNC and BAR.ARV; a barrier without a count is for all warps of the CTA."""
        meetings = warp.cta.meetings
        meeting = meetings.setdefault(instruction.barrier_id, self._new(warp))
        if self._join(meeting, warp, instruction.warps or len(warp.cta.warps), waits=waits):
            del meetings[instruction.barrier_id]

    def cluster(self, warp: Warp, instruction: Instruction) -> None:
        """UCGABAR: all warps of the cluster that execute it."""
        cluster = warp.cta.cluster
        if cluster.meeting is None:
            cluster.meeting = self._new(warp)
        everyone = sum(len(cta.warps) for cta in cluster.ctas)
        if self._join(cluster.meeting, warp, instruction.warps or everyone, waits=True):
            cluster.meeting = None

    def _new(self, warp: Warp) -> Meeting:
        return Meeting(Knowledge.none(warp.cta.cluster.number, self.layout))

    @staticmethod
    def _join(meeting: Meeting, warp: Warp, expected: int, *, waits: bool) -> bool:
        """Add a warp; when all are there the waiting ones learn what all knew. Returns whether it is over."""
        meeting.knowledge.join(warp.release())
        meeting.arrived += 1
        if waits:
            meeting.waiting.append(warp)
        if meeting.arrived < expected:
            return False
        for waiting in meeting.waiting:
            waiting.knowledge.join(meeting.knowledge)
        return True


class Semaphores:
    """Semaphores in global memory: knowledge that goes from cluster to cluster."""

    def __init__(self, program: WarpProgram, layout: Layout) -> None:
        self.program, self.layout = program, layout
        self.columns = {name: index for index, name in enumerate(program.work.attributes)}
        self.known: dict[int, Knowledge] = {}

    def release(self, warp: Warp, instruction: Instruction, item: int) -> None:
        """SEM.RELEASE waits for the stores of the CTA, bulk stores included."""
        knowledge = warp.release().copy()
        for other in warp.cta.warps.values():
            component = self.layout.of_warp(warp.cta.rank, other.index, Source.BULK_GROUPS)
            knowledge.learn(component, other.bulk.issued)
        index = self._index(instruction, item)
        if index in self.known:
            self.known[index].join(knowledge)
        else:
            self.known[index] = knowledge

    def acquire(self, warp: Warp, instruction: Instruction, item: int) -> None:
        """SEM.ACQUIRE has passed."""
        if (knowledge := self.known.get(self._index(instruction, item))) is not None:
            warp.knowledge.join(knowledge)

    def _index(self, instruction: Instruction, item: int) -> int:
        if instruction.semaphore is None:
            raise InternalError(f"{instruction.op} names no semaphore")
        return int(self.program.work.items[item, self.columns[instruction.semaphore]])


def _barrier_of(instruction: Instruction) -> BarrierRef:
    if instruction.barrier is None:
        raise InternalError(f"{instruction.op} names no mbarrier")
    return instruction.barrier


def _owners(ref: BarrierRef, cta: Cta) -> list[Cta]:
    if ref.cta == "own":
        return [cta]
    if ref.cta == "peer":
        return [cta.cluster.ctas[cta.rank ^ 1]]
    return cta.cluster.ctas[:1] if ref.cta == "leader" else cta.cluster.ctas
