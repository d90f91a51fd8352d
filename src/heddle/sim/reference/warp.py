"""The state of one warp context while a CTA runs in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.ir.warp import LOOP_LEVELS, SCOREBOARDS, Instruction, Role
from heddle.sim.result import Stall

if TYPE_CHECKING:
    from heddle.ir.warp_fiber import Bind
    from heddle.sim.reference.cta import Cta
    from heddle.sim.reference.operation import Operation
    from heddle.sim.reference.wgmma import Collective

NEVER = 1 << 62  # a cycle that does not come: not known yet


class Counter:
    """A dependence counter: operations that are pending, and the latest known release of the others."""

    def __init__(self) -> None:
        self.pending = 0
        self.release = 0
        self.reason = Stall.SHORT_SCOREBOARD

    def at_rest(self, cycle: int) -> bool:
        """Tell whether every operation that set the counter is done at `cycle`."""
        return self.pending == 0 and cycle >= self.release


class Warp:
    """Program counter, issue state, counters, loops, rings and open groups of a warp that may issue from `start` on."""

    def __init__(self, cta: Cta, role: Role, index: int, start: int) -> None:
        self.cta = cta
        self.start = start
        self.role = role
        self.index = index  # in the CTA
        self.rank = index - role.first_warp  # in the role
        self.context = cta.slot * cta.cluster.chip.program.warps_per_cta + index
        self.pc = role.entry
        self.ended = False
        self.masked = False  # ended by a SETFIBER: may come back
        self.accounted = -1  # cycle whose state has been charged already
        self.bound: Bind | None = None  # what DEPBAR.BIND keeps for the next instruction
        self.operation: Operation | None = None  # of the instruction that issues now, where registers have bits
        self.next_ok = 0
        self.next_ok_reason = Stall.WAIT
        self.latched = 0  # how many of the conditions a to d have held for this instruction
        self.counters = [Counter() for _ in range(SCOREBOARDS)]
        self.loops = [0] * LOOP_LEVELS
        self.rings = {ring.name: (0, 0) for ring in cta.cluster.chip.program.rings}  # name -> stage, phase
        self.item_number = 0  # how many items this warp has left behind
        self.open_copies: list[int] = []  # answers R of LDGSTS since the last commit
        self.copy_groups: list[int] = []  # completion cycle of each committed group
        self.open_bulk: list[int] = []  # source-read cycles of bulk stores since the last commit
        self.bulk_groups: list[int] = []
        self.wgmma_issued = cta.collectives_formed(index)
        self.signals_issued = 0
        self.groups_issued = cta.groups_formed(index)  # matrix instructions of four wefts together
        self.wgmma_groups: list[Collective | None] = []
        self.branch_target: int | None = None  # of the instruction that issues now
        self.other_path: int | None = None  # pc of the path that waits, where fibers have parted and it has not ended
        self.tcgen05_complete = 0  # cycle in which all tcgen05.mma of this warp are complete

    @property
    def subpartition(self) -> int:
        """The subpartition on which the warp runs."""
        return self.index % self.cta.sm.machine.subpartitions

    def take_bound(self) -> Bind | None:
        """Return what a BIND has bound to the instruction that issues now; the next one has none."""
        bound, self.bound = self.bound, None
        return bound

    def acts(self, instruction: Instruction) -> bool:
        """Tell whether the instruction acts for this warp, or is predicated off by `by`."""
        return {"warp": True, "group": self.rank % 4 == 0, "role": self.rank == 0}[instruction.by]

    def item(self) -> int:
        """Return the row of the work table that the warp works on."""
        return self.cta.cluster.items[self.item_number]

    def attribute(self, name: str) -> int:
        """Return an attribute of the current work item."""
        work = self.cta.cluster.chip.program.work
        return int(work.items[self.item(), work.attributes.index(name)])

    def stage(self, ring: str | None) -> int:
        """Return the stage of a ring; 0 without a ring."""
        return self.rings[ring][0] if ring is not None else 0

    def phase(self, ring: str | None) -> int:
        """Return the phase of a ring; 0 without a ring."""
        return self.rings[ring][1] if ring is not None else 0

    def advance(self, ring: str, depth: int) -> None:
        """Step a ring by one stage."""
        stage, phase = self.rings[ring]
        self.rings[ring] = (stage + 1, phase) if stage + 1 < depth else (0, phase ^ 1)

    def hold(self, until: int, reason: Stall) -> None:
        """Let the next instruction issue no earlier than `until`; the whole wait has `reason`."""
        self.next_ok = max(self.next_ok, until)
        self.next_ok_reason = reason

    def release(self, counter: int | None, cycle: int, reason: Stall) -> None:
        """Record an operation on a counter (None: none) that is known to end at `cycle`."""
        if counter is not None:
            self.counters[counter].release = max(self.counters[counter].release, cycle)
            self.counters[counter].reason = reason

    def begin(self, counter: int | None, reason: Stall) -> None:
        """Record an operation on a counter whose end is not known yet."""
        if counter is not None:
            self.counters[counter].pending += 1
            self.counters[counter].reason = reason

    def finish(self, counter: int | None, cycle: int) -> None:
        """Tell when an operation that had begun ends."""
        if counter is not None:
            self.counters[counter].pending -= 1
            self.counters[counter].release = max(self.counters[counter].release, cycle)
