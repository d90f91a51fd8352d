"""What CTAs of a cluster do to each other: no CTA is touched before it is known to have begun, nor ends while it is.

Shared memory of another CTA is there from that CTA's start to its end. So who signals or copies must know something of
the other CTA (a cluster barrier tells it), and before they end, both must know that a copy between them has landed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heddle.interp._clocks import Knowledge, Layout, Source
from heddle.interp._effects import Doing
from heddle.interp._warps import Cta, Warp
from heddle.interp.hazards import HazardList, Site
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, WarpProgram


@dataclass(slots=True)
class _Copies:
    """Copies between the CTAs of one cluster, and what the CTAs knew at their ends."""

    flying: list[Doing] = field(default_factory=list)
    landed: dict[tuple[int, int, int, int], int] = field(default_factory=dict)  # sender, receiver, pc, component: value
    known: dict[int, Knowledge] = field(default_factory=dict)  # rank -> what its warps knew when they ended
    exits: dict[int, tuple[Site, int]] = field(default_factory=dict)  # rank -> its last EXIT and its cycle


class Peers:
    """Follows signals to peers and copies into their shared memory; reports what comes too early or too late."""

    def __init__(self, program: WarpProgram, layout: Layout, hazards: HazardList) -> None:
        self.program, self.layout, self.hazards = program, layout, hazards
        self.copies = any(OPCODES[i.op].unit is Unit.BULK_PEER for i in program.instructions)
        self.clusters: dict[int, _Copies] = {}

    def reach(self, warp: Warp, instruction: Instruction, doing: Doing) -> None:
        """Report a signal or copy to the peer by a warp that does not know whether the peer has begun."""
        if instruction.barrier is None or instruction.barrier.cta != "peer":
            return
        first = (warp.cta.rank ^ 1) * self.layout.per_cta + Source.PROGRAM
        programs = warp.knowledge.own[first : first + len(Source) * self.layout.warps : len(Source)]
        if not programs.any():
            self.hazards.too_early(instruction.barrier.name, _site(doing), doing.begin)

    def send(self, doing: Doing) -> None:
        """A copy to the peer was issued."""
        self._of(doing.warp.cta).flying.append(doing)

    def land(self, doing: Doing, receiver: Cta) -> None:
        """A copy has landed; its component and value say who knows that."""
        if not self.copies:
            return
        copies = self.clusters.get(receiver.cluster.number)
        if copies is not None and doing in copies.flying:  # those of clusters that have ended are reported by then
            copies.flying.remove(doing)
            copies.landed[doing.warp.cta.rank, receiver.rank, doing.pc, doing.component] = doing.value

    def exit(self, doing: Doing) -> None:
        """A warp ends; with the last one of a cluster all copies must be known to have landed."""
        if not self.copies:
            return
        cta = doing.warp.cta
        copies = self._of(cta)
        if cta.rank in copies.known:
            copies.known[cta.rank].join(doing.warp.knowledge)
        else:
            copies.known[cta.rank] = doing.warp.knowledge.copy()
        copies.exits[cta.rank] = (_site(doing), doing.begin)
        if cta.cluster.running == 1:
            self._end(self.clusters.pop(cta.cluster.number), cta.cluster.number)

    def _end(self, copies: _Copies, cluster: int) -> None:
        """Report each copy that its sender or its receiver did not know to have landed."""
        late = [(doing.warp.cta.rank, doing.pc) for doing in copies.flying]
        for (sender, receiver, pc, component), value in copies.landed.items():
            for rank in (sender, receiver):
                if rank in copies.known and not copies.known[rank].knows(cluster, component, value):
                    late.append((rank, pc))
        for rank, pc in late:
            self.hazards.unfinished(pc, *copies.exits[rank], copy=True)

    def _of(self, cta: Cta) -> _Copies:
        return self.clusters.setdefault(cta.cluster.number, _Copies())


def _site(doing: Doing) -> Site:
    return Site(doing.pc, doing.warp.cta.sm, doing.warp.cta.slot, doing.warp.index)
