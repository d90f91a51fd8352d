"""Which cluster runs on which items, and what follows when one ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.sim.reference.cta import Cluster
from heddle.sim.reference.events import Action

if TYPE_CHECKING:
    from heddle.sim.reference.chip import Chip


class Launcher:
    """Hands out places and items, the latter in order."""

    def __init__(self, chip: Chip) -> None:
        self._chip = chip
        self._schedule = chip.program.work.schedule
        self._later = list(chip.setup.later_items)
        self._resident: list[Cluster] = []
        self.draining: list[Cluster] = []  # ended, but something is in flight on their registers

    def start(self) -> None:
        """Launch the first clusters, breadth first; the first item of place c is item c."""
        for place in self._chip.setup.places:
            self._launch(place, item=place, start=0)

    def free(self, cluster: Cluster) -> None:
        """Give the place of a cluster that has ended back, once nothing is in flight on its registers."""
        self._resident.remove(cluster)
        if cluster.rest_at is None:
            self.draining.append(cluster)
        elif self._schedule == "launch" or self._chip.has_bits:
            self._chip.events.at(cluster.rest_at, self._ending(cluster))

    def end_of_cycle(self, cycle: int) -> None:
        """Let wefts meet, and ended clusters go whose last operation has started."""
        if self._chip.meets:
            for cta in sorted((cta for c in self._resident for cta in c.ctas), key=lambda c: (c.sm.number, c.slot)):
                cta.meeting.end_of_cycle(cycle)
        for cluster in list(self.draining):
            if cluster.rest_at is not None:
                self.draining.remove(cluster)
                self._chip.events.at(max(cluster.rest_at, cycle + 1), self._ending(cluster))

    def _ending(self, cluster: Cluster) -> Action:
        return lambda now: self._end(cluster, now)

    def _end(self, cluster: Cluster, now: int) -> None:
        """End a cluster: report data that nobody consumed, and let the next cluster follow under schedule launch."""
        for cta in cluster.ctas:
            cta.report_unconsumed()
        if self._schedule == "launch":
            self._follow(cluster, now)

    def next_item(self, cluster: Cluster) -> int | None:
        """Return the item after a cluster's last one, or None."""
        if self._schedule == "static":
            following = cluster.items[-1] + self._chip.setup.resident
            return following if following < len(self._chip.program.work.items) else None
        if self._schedule == "dynamic" and self._later:
            return self._later.pop(0)
        return None

    def _follow(self, ended: Cluster, now: int) -> None:
        if self._later:
            ended.followed = True
            start = now + self._chip.machine.cta_launch_cycles
            self._launch(ended.number, item=self._later.pop(0), start=start)

    def _launch(self, place: int, *, item: int, start: int) -> None:
        cluster = Cluster(self._chip, place, item, start)
        self._resident.append(cluster)
        for cta in cluster.ctas:
            cta.sm.admit(cta.warps)
