"""Which cluster runs on which items, and what follows when one ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.sim.reference.cta import Cluster

if TYPE_CHECKING:
    from heddle.sim.reference.chip import Chip


class Launcher:
    """Hands out places and items, the latter in order."""

    def __init__(self, chip: Chip) -> None:
        self._chip = chip
        self._schedule = chip.program.work.schedule
        self._later = list(chip.setup.later_items)

    def start(self) -> None:
        """Launch the first clusters, breadth first; the first item of place c is item c."""
        for place in self._chip.setup.places:
            self._launch(place, item=place, start=0)

    def free(self, cluster: Cluster) -> None:
        """Let the next cluster follow in the place of one that has ended, under schedule launch."""
        if self._schedule == "launch":
            self._chip.events.at(cluster.free_at, lambda now: self._follow(cluster, now))

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
            start = now + self._chip.machine.cta_launch_cycles
            self._launch(ended.number, item=self._later.pop(0), start=start)

    def _launch(self, place: int, *, item: int, start: int) -> None:
        cluster = Cluster(self._chip, place, item, start)
        for cta in cluster.ctas:
            cta.sm.admit(cta)
