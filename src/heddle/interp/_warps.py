"""The replayed state of clusters, CTAs and warps: rings, groups, barriers, and the copies of data objects."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from heddle.interp._arrays import TileArray
from heddle.interp._clocks import Knowledge, Layout, Source
from heddle.interp.hazards import History
from heddle.ir.opcodes import OPCODES, Opcode
from heddle.ir.warp import Role, WarpProgram


@dataclass(slots=True, eq=False)
class Groups:
    """Commit groups of one kind of one warp: for each closed group the number of operations up to its end."""

    issued: int = 0
    closed: list[int] = field(default_factory=list)

    def close(self) -> None:
        """Commit what was issued."""
        self.closed.append(self.issued)

    def known_after_wait(self, pending: int) -> int:
        """Return how many operations are finished when at most `pending` groups are outstanding."""
        index = len(self.closed) - 1 - pending
        return self.closed[index] if index >= 0 else 0


@dataclass(slots=True, eq=False)
class Meeting:
    """A named or cluster barrier while it fills."""

    knowledge: Knowledge
    arrived: int = 0
    waiting: list[Warp] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class PhaseBarrier:
    """One mbarrier element: knowledge of completed phases, and of the arrivals that belong to phases to come."""

    arrivals_a_phase: int
    component: int
    knowledge: Knowledge
    arrived: int = 0
    completed: int = 0
    coming: dict[int, Knowledge] = field(default_factory=dict)

    def arrive(self, knowledge: Knowledge) -> None:
        """Add an arrival; the k-th arrival belongs to phase k / arrivals a phase."""
        phase = self.arrived // self.arrivals_a_phase
        self.arrived += 1
        if phase in self.coming:
            self.coming[phase].join(knowledge)
        else:
            self.coming[phase] = knowledge.copy()

    def complete(self) -> None:
        """Finish a phase: its waiters know what the arriving warps knew, and the phase's bulk copies."""
        arrived = self.coming.pop(self.completed, None)
        if arrived is not None:
            self.knowledge.join(arrived)
        self.completed += 1
        self.knowledge.learn(self.component, self.completed)


@dataclass(slots=True, eq=False)
class Warp:
    """One warp of a CTA: its place in its role, its rings' (stage, phase), what it knows and its commit groups."""

    cta: Cta
    index: int
    role: Role
    knowledge: Knowledge
    rings: dict[str, int]  # ring -> stage
    component: int
    stamp: int = 1  # grows at every release, so that what follows it stays unknown to others
    copies: Groups = field(default_factory=Groups)
    bulk: Groups = field(default_factory=Groups)
    matrix: Groups = field(default_factory=Groups)
    fences: list[int] = field(default_factory=list)  # cycles of its FENCEs
    counted: dict[int, int] = field(default_factory=dict)  # counter -> the weft's last matrix instruction with it
    last_bulk_store: int = -1  # its pc

    @property
    def rank(self) -> int:
        """Index of the warp in its role."""
        return self.index - self.role.first_warp

    def fenced(self, first: int, last: int) -> bool:
        """Tell whether a FENCE of this warp issued from cycle `first` to cycle `last`."""
        at = bisect_left(self.fences, first)
        return at < len(self.fences) and self.fences[at] <= last

    def release(self) -> Knowledge:
        """Return what the warp knows, its own work so far included, and begin a new stretch of its program."""
        self.knowledge.learn(self.component, self.stamp)
        self.stamp += 1
        return self.knowledge


@dataclass(slots=True, eq=False)
class Cta:
    """One CTA: its arrays, mbarriers, named barriers and warps."""

    cluster: Cluster
    rank: int
    sm: int
    slot: int
    arrays: dict[str, TileArray] = field(default_factory=dict)
    histories: dict[tuple[str, int, int], History] = field(default_factory=dict)
    barriers: dict[tuple[str, int], PhaseBarrier] = field(default_factory=dict)
    meetings: dict[int, Meeting] = field(default_factory=dict)
    warps: dict[int, Warp] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Cluster:
    """The CTAs that run together in one slot, from launch to the last EXIT."""

    number: int
    ctas: list[Cta] = field(default_factory=list)
    meeting: Meeting | None = None
    running: int = 0


class House:
    """All clusters that live at one moment, by (sm // cluster size, slot); new ones are made at their first issue."""

    def __init__(self, program: WarpProgram, layout: Layout) -> None:
        self.program, self.layout = program, layout
        self.size = program.cluster_size
        self.living: dict[tuple[int, int], Cluster] = {}
        self.made = 0
        self.roles = [role for role in program.roles for _ in range(role.warps)]
        self.opcodes: list[Opcode] = [OPCODES[i.op] for i in program.instructions]

    def warp(self, sm: int, slot: int, index: int) -> Warp:
        """Return the warp that lives at this place, of a new cluster if none does."""
        key = (sm // self.size, slot)
        cluster = self.living.get(key)
        if cluster is None:
            cluster = self.living[key] = self._new_cluster(key[0] * self.size, slot)
        return cluster.ctas[sm % self.size].warps[index]

    def exit(self, warp: Warp) -> None:
        """End a warp; a cluster without running warps leaves its slot."""
        cluster = warp.cta.cluster
        cluster.running -= 1
        if cluster.running == 0:
            del self.living[warp.cta.sm // self.size, warp.cta.slot]

    def barrier(self, cta: Cta, name: str, element: int) -> PhaseBarrier:
        """Return an mbarrier element of a CTA."""
        key = (name, element)
        if key not in cta.barriers:
            arrivals = next(b.arrivals for b in self.program.barriers if b.name == name)
            component = self.layout.of_element(cta.rank, name, element)
            cta.barriers[key] = PhaseBarrier(arrivals, component, Knowledge.none(cta.cluster.number, self.layout))
        return cta.barriers[key]

    def _new_cluster(self, first_sm: int, slot: int) -> Cluster:
        cluster = Cluster(self.made)
        self.made += 1
        for rank in range(self.size):
            cta = Cta(cluster, rank, first_sm + rank, slot)
            for index, role in enumerate(self.roles):
                if role.leader_only and rank:
                    continue
                cta.warps[index] = self._new_warp(cta, index, role)
                cluster.running += 1
            cluster.ctas.append(cta)
        return cluster

    def _new_warp(self, cta: Cta, index: int, role: Role) -> Warp:
        return Warp(
            cta,
            index,
            role,
            Knowledge.none(cta.cluster.number, self.layout),
            {ring.name: 0 for ring in self.program.rings},
            self.layout.of_warp(cta.rank, index, Source.PROGRAM),
        )
