"""A resident CTA and the cluster that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from heddle.ir.warp import Role
from heddle.sim.reference.events import Action
from heddle.sim.reference.fiber_sync import Meeting
from heddle.sim.reference.fiber_thread import FiberThread
from heddle.sim.reference.mbarrier import Mbarrier
from heddle.sim.reference.named_barrier import CountedBarrier
from heddle.sim.reference.warp import Warp
from heddle.sim.reference.weft_queue import GROUP_WEFTS, Group
from heddle.sim.reference.wgmma import GROUP_WARPS, Collective

if TYPE_CHECKING:
    from heddle.sim.reference.chip import Chip
    from heddle.sim.reference.sm import Sm


class Cluster:
    """CTAs that were launched together, one on each SM of a group, and their work items."""

    def __init__(self, chip: Chip, number: int, first_item: int, start: int) -> None:
        self.chip = chip
        self.number = number  # of its place: group and slot
        self.items = [first_item]
        self.barrier = CountedBarrier()
        self.start = start
        self.followed = False  # another cluster has its place
        group, self.slot = number % chip.setup.groups, number // chip.setup.groups
        size = chip.program.cluster_size
        self.ctas = [Cta(self, chip.sms[group * size + rank], rank) for rank in range(size)]

    def has_item(self, number: int) -> bool:
        """Tell whether the cluster has a `number`-th item; the first warp that asks fixes it for all."""
        while len(self.items) <= number:
            item = self.chip.launcher.next_item(self)
            if item is None:
                return False
            self.items.append(item)
        return True

    @property
    def ended(self) -> bool:
        """Whether all warps have ended."""
        return all(warp.ended for cta in self.ctas for warp in cta.warps)

    @property
    def rest_at(self) -> int | None:
        """The cycle in which the slot is free: warps ended, sources of stores read, nothing in flight on registers.

        None if that is not known yet.
        """
        rests = [0 if cta.thread is None else cta.thread.rest_at() for cta in self.ctas]
        known = [rest for rest in rests if rest is not None]
        if len(known) < len(rests):
            return None
        return max(*known, *(max(cta.last_exit + 1, cta.source_read) for cta in self.ctas))


class Cta:
    """A CTA: its resident warps, its barriers, and when its stores are done."""

    def __init__(self, cluster: Cluster, sm: Sm, rank: int) -> None:
        self.cluster = cluster
        self.sm = sm
        self.slot = cluster.slot
        self.rank = rank
        self.last_exit = -1
        self.source_read = 0
        self.stores_visible = 0
        program = cluster.chip.program
        self.mbarriers = {
            barrier.name: [Mbarrier(barrier.arrivals, self._completion(index, place)) for place in range(barrier.count)]
            for index, barrier in enumerate(program.barriers)
        }
        self._named: dict[int, CountedBarrier] = {}
        self._collectives: dict[int, list[Collective]] = {}
        self._groups: dict[int, list[Group]] = {}
        self._signals: dict[tuple[int, int], int] = {}
        self.meeting = Meeting(self)
        self.thread = FiberThread(self) if cluster.chip.has_bits else None
        alone = program.mode == "fiber"  # weft 0 starts the others
        self.warps = [
            Warp(self, role, index, cluster.start) for role, index in self.places() if not alone or index == 0
        ]

    def places(self) -> Iterator[tuple[Role, int]]:
        """Yield the warps that this CTA can have, with their roles."""
        for role in self.cluster.chip.program.roles:
            if not role.leader_only or self.rank == 0:
                for index in range(role.first_warp, role.first_warp + role.warps):
                    yield role, index

    def add(self, warp: Warp) -> None:
        """Let a new weft start, in the place of one that was masked if there was one."""
        self.warps = [other for other in self.warps if other.index != warp.index] + [warp]
        self.sm.admit([warp])

    def _completion(self, barrier: int, element: int) -> Action:
        """Return what happens when a phase of an mbarrier completes; nobody sees it once another CTA has the slot."""

        def complete(now: int) -> None:
            if not self.cluster.followed:
                self.cluster.chip.log.barrier(self, barrier, element, now)

        return complete

    def named_barrier(self, number: int) -> CountedBarrier:
        """Return a named barrier of the CTA."""
        return self._named.setdefault(number, CountedBarrier())

    def collective(self, warp: Warp, number: int) -> Collective:
        """Return the `number`-th collective of the warp's group; the first warp to reach it makes it."""
        collectives = self._collectives.setdefault(warp.index // GROUP_WARPS, [])
        while len(collectives) <= number:
            collectives.append(Collective())
        return collectives[number]

    def signals(self, warp: Warp, number: int) -> bool:
        """Count a warp's `number`-th WGMMA_SIGNAL; return whether all four warps of the group have issued it."""
        key = warp.index // GROUP_WARPS, number
        self._signals[key] = self._signals.get(key, 0) + 1
        return self._signals[key] == GROUP_WARPS

    def collectives_formed(self, index: int) -> int:
        """Return how many collectives of a warp's group all four have issued: where a new warp joins."""
        formed = self._collectives.get(index // GROUP_WARPS, [])
        return sum(len(collective.members) == GROUP_WARPS for collective in formed)

    def weft_group(self, warp: Warp, number: int) -> Group:
        """Return the `number`-th group instruction of the warp's four; the first to reach it makes it."""
        groups = self._groups.setdefault(warp.index // GROUP_WEFTS, [])
        while len(groups) <= number:
            groups.append(Group(len(groups)))
        return groups[number]

    def groups_formed(self, index: int) -> int:
        """Return how many group instructions all four wefts have issued: where a new weft joins."""
        return sum(group.complete for group in self._groups.get(index // GROUP_WEFTS, []))

    def report_unconsumed(self) -> None:
        """Warn of registers that are still full when the FIBER-thread ends."""
        if self.thread is None:
            return
        self.cluster.chip.traces.append(self.thread.trace)
        held = self.thread.unconsumed()
        if held:
            named = ", ".join(map(str, held[:4])) + (f" and {len(held) - 4} more" if len(held) > 4 else "")
            self.cluster.chip.warnings.append(
                f"SM {self.sm.number}, slot {self.slot}: a datum that nobody consumed is left in {named}"
            )

    def note_store(self, *, source_read: int, visible: int) -> None:
        """Note a store: when its source has been read and when all see it."""
        self.source_read = max(self.source_read, source_read)
        self.stores_visible = max(self.stores_visible, visible)
        self.cluster.chip.note_end(visible)
