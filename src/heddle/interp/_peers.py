"""What CTAs of a cluster do to each other: no CTA is touched before it is known to have begun, nor ends while it is.

Shared memory and mbarriers of another CTA are there from that CTA's start to its end. So who signals another CTA,
copies there or multiplies with its tiles must know something of it (a cluster barrier tells it), and before a CTA ends
it must know that all this is over. A copy between shared memories touches its sender, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heddle.interp._clocks import Knowledge, Layout, Source
from heddle.interp._effects import Doing
from heddle.interp._warps import Cta, Warp
from heddle.interp.hazards import HazardList, Site
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, WarpProgram

_COPIES = (Unit.BULK_LOAD, Unit.BULK_PEER)


@dataclass(slots=True)
class _Touches:
    """What CTAs of one cluster did to others, and what they knew at their ends."""

    flying: dict[Doing, set[int]] = field(default_factory=dict)  # copy -> ranks where it has not landed
    last: dict[tuple[int, int, int], int] = field(default_factory=dict)  # touched rank, pc, component -> value
    known: dict[int, Knowledge] = field(default_factory=dict)  # rank -> what its warps knew when they ended
    exits: dict[int, tuple[Site, int]] = field(default_factory=dict)  # rank -> its last EXIT and its cycle

    def touch(self, rank: int, pc: int, component: int, value: int) -> None:
        """A CTA is touched; a component and its value say who knows that this is over."""
        key = (rank, pc, component)
        self.last[key] = max(value, self.last.get(key, 0))


class Peers:
    """Follows what touches other CTAs of a cluster; reports what comes too early or too late."""

    def __init__(self, program: WarpProgram, layout: Layout, hazards: HazardList) -> None:
        self.program, self.layout, self.hazards = program, layout, hazards
        self.units = [OPCODES[i.op].unit for i in program.instructions]
        self.clusters: dict[int, _Touches] = {}

    def reach(self, doing: Doing) -> set[int]:
        """Return the ranks of other CTAs that an instruction touches; report those not known to have begun."""
        touched = self._others(doing.warp, self.program.instructions[doing.pc])
        for rank in touched:
            first = rank * self.layout.per_cta + Source.PROGRAM
            programs = doing.warp.knowledge.own[first : first + len(Source) * self.layout.warps : len(Source)]
            if not programs.any():
                self.hazards.too_early(_site(doing), doing.begin)
        return touched

    def signal(self, doing: Doing) -> None:
        """An arrival, a commit or a matrix instruction, the end of which its component and value tell."""
        for rank in self.reach(doing):
            self._of(doing.warp.cta).touch(rank, doing.pc, doing.component, doing.value)

    def send(self, doing: Doing) -> None:
        """A copy was issued."""
        if self.reach(doing):
            cta, multicast = doing.warp.cta, self.program.instructions[doing.pc].ctas > 1
            receivers = {cta.rank ^ 1} if self.units[doing.pc] is Unit.BULK_PEER else {cta.rank}
            self._of(cta).flying[doing] = set(range(self.layout.cluster_size)) if multicast else receivers

    def land(self, doing: Doing, receiver: Cta) -> None:
        """A copy has landed; its component and value say who knows that."""
        touches = self.clusters.get(receiver.cluster.number)
        if touches is None or doing not in touches.flying:  # those of clusters that have ended are reported by then
            return
        instruction, sender = self.program.instructions[doing.pc], doing.warp.cta.rank
        left = touches.flying[doing]
        left.discard(receiver.rank)
        if not left:
            del touches.flying[doing]
        touched = {receiver.rank}
        if instruction.barrier is not None and instruction.barrier.cta == "leader":
            touched.add(0)
        if self.units[doing.pc] is not Unit.BULK_PEER:
            touched.discard(sender)
        else:
            touched.add(sender)
        for rank in touched:
            touches.touch(rank, doing.pc, doing.component, doing.value)

    def exit(self, doing: Doing) -> None:
        """A warp ends; with the last one of a cluster each CTA must know that what touched it is over."""
        if self.layout.cluster_size == 1:
            return
        cta = doing.warp.cta
        touches = self._of(cta)
        if cta.rank in touches.known:
            touches.known[cta.rank].join(doing.warp.knowledge)
        else:
            touches.known[cta.rank] = doing.warp.knowledge.copy()
        touches.exits[cta.rank] = (_site(doing), doing.begin)
        if cta.cluster.running == 1:
            self._end(self.clusters.pop(cta.cluster.number), cta.cluster.number)

    def _end(self, touches: _Touches, cluster: int) -> None:
        """Report each CTA that ended without knowing that something that touched it was over."""
        late = [(doing.warp.cta.rank, doing.pc) for doing in touches.flying]
        for (rank, pc, component), value in touches.last.items():
            if rank in touches.known and not touches.known[rank].knows(cluster, component, value):
                late.append((rank, pc))
        for rank, pc in late:
            exit_site, cycle = touches.exits[rank]
            if self.units[pc] in _COPIES:
                self.hazards.unfinished(pc, exit_site, cycle, copy=True)
            else:
                self.hazards.touched_at_end(pc, exit_site, cycle)

    def _others(self, warp: Warp, instruction: Instruction) -> set[int]:
        """Return the ranks of other CTAs whose shared memory or mbarriers an instruction touches."""
        rank, everyone = warp.cta.rank, set(range(self.layout.cluster_size))
        touched: set[int] = set()
        if instruction.ctas > 1:
            touched = {rank ^ 1} if OPCODES[instruction.op].unit is Unit.TCGEN05_MMA else everyone
        if instruction.barrier is not None:
            touched = touched | {"own": {rank}, "peer": {rank ^ 1}, "leader": {0}}.get(
                instruction.barrier.cta, everyone
            )
        return touched - {rank}

    def _of(self, cta: Cta) -> _Touches:
        return self.clusters.setdefault(cta.cluster.number, _Touches())


def _site(doing: Doing) -> Site:
    return Site(doing.pc, doing.warp.cta.sm, doing.warp.cta.slot, doing.warp.index)
