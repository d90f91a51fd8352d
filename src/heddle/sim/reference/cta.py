"""A resident CTA and the cluster that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.sim.reference.events import Action
from heddle.sim.reference.mbarrier import Mbarrier
from heddle.sim.reference.named_barrier import CountedBarrier
from heddle.sim.reference.warp import Warp
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
    def free_at(self) -> int:
        """The cycle in which the slot is free: warps ended and sources of stores read."""
        return max(max(cta.last_exit + 1, cta.source_read) for cta in self.ctas)


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
        self.warps = [
            Warp(self, role, role.first_warp + index)
            for role in program.roles
            if not role.leader_only or rank == 0
            for index in range(role.warps)
        ]

    def _completion(self, barrier: int, element: int) -> Action:
        """Return what happens when a phase of an mbarrier completes."""
        return lambda now: self.cluster.chip.log.barrier(self, barrier, element, now)

    def named_barrier(self, number: int) -> CountedBarrier:
        """Return a named barrier of the CTA."""
        return self._named.setdefault(number, CountedBarrier())

    def collective(self, warp: Warp, number: int) -> Collective:
        """Return the `number`-th collective of the warp's group; the first warp to reach it makes it."""
        collectives = self._collectives.setdefault(warp.index // GROUP_WARPS, [])
        while len(collectives) <= number:
            collectives.append(Collective())
        return collectives[number]

    def note_store(self, *, source_read: int, visible: int) -> None:
        """Note a store: when its source has been read and when all see it."""
        self.source_read = max(self.source_read, source_read)
        self.stores_visible = max(self.stores_visible, visible)
        self.cluster.chip.note_end(visible)
