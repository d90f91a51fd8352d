"""What runs where: clusters, the SMs that hold them, their work items, and the one that represents the rest.

An SM group is `cluster_size` SMs; it holds `slots` clusters at a time. Cluster c starts in group c % groups, slot
c // groups (breadth first, as the hardware fills SMs). Rule: docs/reference/engine.md, sections 1 and 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.core.memory_layout import ENTRY_WORDS
from heddle.sim.launch_occupancy import Occupancy, occupancy
from heddle.sim.launch_work import item_weights, items_inside, shares
from heddle.sim.memory_spaces import stream_spaces

MOST_TAG_BYTES = 1 << 29
"""Memory for the tags of all blocks of the program's tensors."""
WORD_BYTES = 8

__all__ = ["LaunchPlan", "Occupancy", "occupancy", "plan_launch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Which clusters run, where, and on which items.

    `items[c]`: rows of `work.items` that resident cluster c (a place: group and slot) works on, in order. Exact for
    schedule `static`; for `launch` and `dynamic` it is the estimate (whoever is free first gets the next item) that the
    representative and `sm` modes use, while `chip` mode hands out `order` as places become free or clusters ask.
    """

    occupancy: Occupancy
    schedule: Literal["static", "launch", "dynamic"]
    cluster_size: int
    groups: int  # SM groups of the chip that can hold a cluster
    slots: int  # clusters that a group can hold
    clusters: int  # resident at the start
    items: tuple[NDArray[np.int64], ...]
    order: NDArray[np.int64]  # rows of work.items in the order in which they are handed out
    representative: int  # group with the most work inside the tensors, the middle of equals

    @property
    def used_groups(self) -> int:
        """Groups that hold at least one cluster."""
        return min(self.groups, self.clusters)

    def group_clusters(self, group: int) -> range:
        """Resident clusters of a group, by slot."""
        return range(group, self.clusters, self.groups)

    def group_sms(self, group: int) -> range:
        """Chip-wide numbers of the SMs of a group."""
        return range(group * self.cluster_size, (group + 1) * self.cluster_size)

    def item_ordinal(self, group: int, slot: int, index: int) -> int:
        """Return the place of a slot's `index`-th item in `group_items`, which goes wave by wave over the slots.

        Not for schedule `launch`: there the k-th cluster that starts in the group takes place k.
        """
        return index * len(self.group_clusters(group)) + slot

    def group_items(self, group: int) -> NDArray[np.int64]:
        """Items of a group by ordinal (rows of `work.items`); -1 where a slot has fewer waves than another."""
        lists = [self.items[c] for c in self.group_clusters(group)]
        if self.schedule == "launch":
            return np.sort(np.concatenate(lists))
        table = np.full((max((len(rows) for rows in lists), default=0), len(lists)), -1, dtype=np.int64)
        for slot, rows in enumerate(lists):
            table[: len(rows), slot] = rows
        return table.reshape(-1)


def _check(program: WarpProgram, machine: Machine) -> None:
    """Raise UserError if the program's work or cluster shape cannot be launched, or its tensors are too large."""
    work = program.work
    if work.items.ndim != 2 or not len(work.items):
        raise UserError(f"{program.name}: there are no work items", hint="every problem size must be at least 1")
    if work.grid < 1:
        raise UserError(f"{program.name}: the grid has {work.grid} clusters; at least 1 is needed")
    if not 1 <= program.cluster_size <= min(machine.max_cluster_size, machine.sms):
        raise UserError(
            f"{program.name}: clusters of {program.cluster_size} CTAs; "
            f"{machine.name} allows 1 to {machine.max_cluster_size}",
            hint="choose a smaller cluster",
        )
    spaces = {space.number: space for space in stream_spaces(program)}.values()
    tag_bytes = sum(space.blocks * (ENTRY_WORDS + space.pieces) for space in spaces) * WORD_BYTES
    if tag_bytes > MOST_TAG_BYTES:
        raise UserError(
            f"{program.name}: its tensors have {sum(space.blocks for space in spaces):,} blocks, whose L2 tags take "
            f"{tag_bytes:,} bytes; at most {MOST_TAG_BYTES:,} are set up, so that a run stays below 1 GB of memory",
            hint="simulate a part, as half of the rows, and scale the time: beyond a few waves it grows with the work",
        )


def _representative(
    program: WarpProgram, items: tuple[NDArray[np.int64], ...], weights: NDArray[np.int64], groups: int
) -> int:
    """Return the group that stands for the rest: the most work, then the fewest items over an edge, then the middle.

    An item over a tensor's edge loads nothing there, so its group is faster. Of equals some are always the first and
    some never the first to ask for what they share; in time those that wait change places with the others.
    """
    inside = items_inside(program)
    load = np.zeros((2, min(groups, len(items))), dtype=np.int64)
    for cluster, rows_of in enumerate(items):
        load[:, cluster % groups] += weights[rows_of].sum(), inside[rows_of].sum()
    busiest = np.flatnonzero(load[0] == load[0].max())
    whole = load[1, busiest]
    equals = busiest[whole == whole.max()]
    return int(equals[len(equals) // 2])


def plan_launch(program: WarpProgram, machine: Machine) -> LaunchPlan:
    """Place the clusters of `program` on `machine` and choose the representative group.

    Raises UserError if a CTA does not fit an SM or the work is empty.
    """
    _check(program, machine)
    fit = occupancy(program, machine)
    work, rows = program.work, len(program.work.items)
    groups, slots = machine.sms // program.cluster_size, fit.ctas_per_sm
    wanted = rows if work.schedule == "launch" else min(work.grid, rows)
    clusters = min(wanted, groups * slots)
    weights = item_weights(program, machine)
    static = work.schedule == "static"
    if static:
        items = tuple(np.arange(cluster, rows, clusters) for cluster in range(clusters))
    else:
        items = tuple(shares(weights, clusters, groups))
    return LaunchPlan(
        occupancy=fit,
        schedule=work.schedule,
        cluster_size=program.cluster_size,
        groups=groups,
        slots=slots,
        clusters=clusters,
        items=items,
        order=np.arange(rows, dtype=np.int64),
        representative=_representative(program, items, weights, groups),
    )
