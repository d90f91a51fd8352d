"""State of an untimed run: warps, groups, mbarriers and meetings, as far as they decide who may go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from heddle.ir.warp import SCOREBOARDS, BarrierRef, Role, WarpProgram


@dataclass(slots=True)
class OpenGroups:
    """Commit groups: unfinished operations of the open group and of each closed one, oldest first."""

    open: list[int] = field(default_factory=list)
    closed: list[list[int]] = field(default_factory=list)

    def add(self, operation: int) -> None:
        """Let an operation join the open group."""
        self.open.append(operation)

    def close(self) -> None:
        """Close the open group."""
        self.closed.append(self.open)
        self.open = []

    def finish(self, operation: int) -> None:
        """Remove a finished operation from its group."""
        for group in (self.open, *self.closed):
            if operation in group:
                group.remove(operation)
                return

    def may_pass(self, pending: int) -> bool:
        """Tell whether all closed groups but the youngest `pending` are finished."""
        return not any(self.closed[: len(self.closed) - pending])


@dataclass(slots=True)
class Phase:
    """An mbarrier element."""

    arrivals: int
    arrived: int = 0
    expected_bytes: int = 0
    parity: int = 0

    def is_over(self) -> bool:
        """Tell whether the phase completes now; if so the next one begins."""
        if self.arrived < self.arrivals or self.expected_bytes != 0:
            return False
        self.arrived = 0
        self.parity ^= 1
        return True


@dataclass(slots=True, eq=False)
class Collective:
    """A matrix instruction of a warp group while its warps arrive, and what ends each warp's part."""

    warps: list[RunningWarp] = field(default_factory=list)
    ends: list[Callable[[], None]] = field(default_factory=list)

    def end(self) -> None:
        """End the part of every warp."""
        for end in self.ends:
            end()


@dataclass(slots=True, eq=False)
class RunningWarp:
    """A warp under way."""

    cta: RunningCta
    index: int
    role: Role
    pc: int
    item: int
    stages: dict[str, int]
    phases: dict[str, int]
    counters: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    pending: list[int] = field(default_factory=lambda: [0] * SCOREBOARDS)
    copies: OpenGroups = field(default_factory=OpenGroups)
    bulk: OpenGroups = field(default_factory=OpenGroups)
    matrix: OpenGroups = field(default_factory=OpenGroups)
    commits: list[tuple[list[int], BarrierRef, int]] = field(default_factory=list)
    ordinal: int = 0  # items taken so far, less one
    blocked: bool = False  # at a named or cluster barrier
    done: bool = False

    @property
    def rank(self) -> int:
        """Index in its role."""
        return self.index - self.role.first_warp


@dataclass(slots=True, eq=False)
class RunningCta:
    """A CTA under way."""

    cluster: RunningCluster
    rank: int
    sm: int
    phases: dict[tuple[str, int], Phase] = field(default_factory=dict)
    meetings: dict[int, list[RunningWarp]] = field(default_factory=dict)
    arrived: dict[int, int] = field(default_factory=dict)
    warps: list[RunningWarp] = field(default_factory=list)
    signals: dict[int, list[set[int]]] = field(default_factory=dict)  # by warp group: who has issued WGMMA_SIGNAL
    stores: int = 0  # whose sources are not read yet


@dataclass(slots=True, eq=False)
class RunningCluster:
    """A cluster under way; `number` counts the launched ones."""

    number: int
    items: list[int]
    ctas: list[RunningCta] = field(default_factory=list)
    meeting: list[RunningWarp] = field(default_factory=list)
    collectives: dict[tuple[int, int], list[Collective]] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """All warps have ended and all stores are read."""
        return all(not cta.stores and all(warp.done for warp in cta.warps) for cta in self.ctas)


def new_cluster(program: WarpProgram, number: int, first_sm: int, item: int) -> RunningCluster:
    """Make a cluster whose warps stand at their entries."""
    cluster = RunningCluster(number, [item])
    for rank in range(program.cluster_size):
        cta = RunningCta(cluster, rank, first_sm + rank)
        for barrier in program.barriers:
            for element in range(barrier.count):
                cta.phases[barrier.name, element] = Phase(barrier.arrivals)
        for role in program.roles:
            if role.leader_only and rank:
                continue
            for index in range(role.first_warp, role.first_warp + role.warps):
                rings = {ring.name: 0 for ring in program.rings}
                cta.warps.append(RunningWarp(cta, index, role, role.entry, item, rings, dict(rings)))
        cluster.ctas.append(cta)
    return cluster
