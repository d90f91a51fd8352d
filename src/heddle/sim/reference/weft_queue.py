"""The matrix queues of an SM: which weft-level matrix instruction starts next, and which four start together.

docs/reference/fiber.md, section 6. An entry is *decided* once its start is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heddle.errors import UserError
from heddle.ir.warp import Instruction
from heddle.sim.reference.operation import Operation
from heddle.sim.reference.ticks import floor_cycles
from heddle.sim.reference.warp import Warp

GROUP_WEFTS = 4


@dataclass(eq=False)
class Entry:
    """An issued matrix instruction in the queue of its subpartition."""

    warp: Warp
    instruction: Instruction
    pc: int
    issued: int  # cycle
    stage: int
    operation: Operation | None
    group: Group | None = None
    start: int | None = None  # ticks

    @property
    def place(self) -> int:
        """The subpartition."""
        return self.warp.subpartition


@dataclass(eq=False)
class Group:
    """The n-th group instruction of four neighbouring wefts."""

    number: int
    members: list[Entry] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether all four have issued."""
        return len(self.members) == GROUP_WEFTS

    def join(self, entry: Entry) -> None:
        """Add a member. Raises UserError if it does not fit the others."""
        first = self.members[0].instruction if self.members else entry.instruction
        other = entry.instruction
        if (first.op, first.shape, first.form, first.dtype) != (other.op, other.shape, other.form, other.dtype):
            raise UserError(
                f"group instruction {self.number} of wefts {entry.warp.index // GROUP_WEFTS * GROUP_WEFTS} to "
                f"{entry.warp.index // GROUP_WEFTS * GROUP_WEFTS + 3} differs between them at pc {entry.pc}: all four "
                f"need one opcode, shape, form and type"
            )
        self.members.append(entry)
        entry.group = self


class MatrixQueues:
    """One queue for each subpartition, in issue order."""

    def __init__(self, subpartitions: int, depth: int) -> None:
        self._queues: list[list[Entry]] = [[] for _ in range(subpartitions)]
        self._depth = depth

    def full(self, place: int, cycle: int) -> bool:
        """Tell whether the instruction `depth` back has not started yet."""
        queue = self._queues[place]
        if len(queue) < self._depth:
            return False
        start = queue[-self._depth].start
        return start is None or floor_cycles(start) > cycle

    def add(self, entry: Entry) -> None:
        """Put an instruction at the end of its queue."""
        self._queues[entry.place].append(entry)

    def head(self, place: int) -> Entry | None:
        """Return the first entry of a queue that is not decided."""
        return next((entry for entry in self._queues[place] if entry.start is None), None)

    def next(self) -> list[Entry] | None:
        """Return what may be decided now: the head of the lowest subpartition that can, with its group."""
        for place in range(len(self._queues)):
            head = self.head(place)
            if head is None:
                continue
            if head.group is None:
                return [head]
            members = sorted(head.group.members, key=lambda entry: entry.warp.index)
            if head.group.complete and all(self.head(member.place) is member for member in members):
                return members
        return None

    def waiting(self) -> list[Entry]:
        """Return the heads that are not decided."""
        heads = [self.head(place) for place in range(len(self._queues))]
        return [head for head in heads if head is not None]
