"""What each weft knows of the others in the play of channels: vector clocks over one schedule.

A held datum tells its reader what its writer had done; giving it back tells the next writer what its reader had done;
a completed mbarrier tells all who wait for it. The order that these impose is the same in every schedule, so two
accesses that are unordered here can come in either order (docs/decisions/0006). Checked so are pool registers and
columns of tensor memory with writes that do not hold, and lockstep groups, which must reach the matrix units of all
subpartitions in one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from heddle.ir.warp import WarpProgram
from heddle.ir.warp_fiber import OWN, SUBPARTITIONS, TENSOR, WINDOW

TENSOR_FIRST = 2 * WINDOW
"""Groups of 32 columns of tensor memory are numbered behind the registers."""
Clock = list[int]
"""By weft: how many of its instructions are known to have issued."""


@dataclass(frozen=True, slots=True)
class Event:
    """An issue: the weft, how many of its instructions had issued with it, where, and what the weft knew then."""

    weft: int
    count: int
    pc: int
    clock: tuple[int, ...]


@dataclass(slots=True)
class Touched:
    """Last accesses of a place."""

    write: Event | None = None
    reads: dict[int, Event] = field(default_factory=dict)
    given_back: Event | None = None


@dataclass(slots=True)
class Order:
    """Clocks of `wefts` wefts; `tiles` are registers with writes that do not hold, `races` pairs of unordered pcs."""

    wefts: int
    tiles: frozenset[int]
    clocks: list[Clock] = field(init=False)
    places: dict[tuple[int, int], Touched] = field(default_factory=dict)
    races: list[tuple[int, int, tuple[int, int]]] = field(default_factory=list)
    groups: list[list[Event]] = field(default_factory=lambda: [[] for _ in range(SUBPARTITIONS)])
    unordered: list[tuple[int, int]] = field(default_factory=list)
    _known: dict[tuple[str, int], Clock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clocks = [[0] * self.wefts for _ in range(self.wefts)]

    def issue(self, weft: int, pc: int) -> Event:
        """A weft issues an instruction; returns the event that the accesses of the instruction share."""
        clock = self.clocks[weft]
        clock[weft] += 1
        return Event(weft, clock[weft], pc, tuple(clock))

    def waited(self, weft: int, place: tuple[int, int], *, read: bool) -> None:
        """A weft is about to issue: its bits allow it to read or write a place."""
        touched = self.places.get(place)
        if touched is None:
            return
        told = touched.write if read else touched.given_back
        if told is not None and not (read and place[1] in self.tiles):
            self.learn(weft, told)

    def read(self, event: Event, place: tuple[int, int], *, gives_back: bool) -> None:
        """An access reads a place."""
        touched = self.places.setdefault(place, Touched())
        if place[1] in self.tiles:
            self._check(event, touched.write, place)
            touched.reads[event.weft] = event
        if gives_back:
            touched.given_back = event

    def write(self, event: Event, place: tuple[int, int]) -> None:
        """An access writes a place."""
        touched = self.places.setdefault(place, Touched())
        if place[1] in self.tiles:
            for other in (touched.write, *touched.reads.values()):
                self._check(event, other, place)
            touched.reads = {}
        touched.write = event

    def group(self, event: Event) -> None:
        """A lockstep instruction: it must be known to come after the one before in its subpartition."""
        before = self.groups[event.weft % SUBPARTITIONS]
        if before and not self._knows(event, before[-1]):
            self.unordered.append((event.pc, before[-1].pc))
        before.append(event)

    def arrive(self, weft: int, barrier: tuple[str, int]) -> None:
        """A weft arrives at an mbarrier: who passes it knows what the weft knows."""
        known = self._known.setdefault(barrier, [0] * self.wefts)
        known[:] = map(max, known, self.clocks[weft])

    def passed(self, weft: int, barrier: tuple[str, int]) -> None:
        """A weft has waited for an mbarrier."""
        known = self._known.get(barrier)
        if known is not None:
            self.clocks[weft][:] = map(max, self.clocks[weft], known)

    def learn(self, weft: int, told: Event) -> None:
        """A weft learns of an event and of what its weft knew."""
        clock = self.clocks[weft]
        if clock[told.weft] < told.count:
            clock[:] = map(max, clock, told.clock)

    def _check(self, event: Event, other: Event | None, place: tuple[int, int]) -> None:
        if other is not None and not self._knows(event, other):
            self.races.append((event.pc, other.pc, place))

    @staticmethod
    def _knows(event: Event, other: Event) -> bool:
        return event.weft == other.weft or event.clock[other.weft] >= other.count

    def teams(self) -> Sequence[list[int]]:
        """By subpartition: the groups of wefts whose lockstep instructions have issued, in order."""
        return [[event.weft // SUBPARTITIONS for event in events] for events in self.groups]


def tile_registers(program: WarpProgram) -> frozenset[int]:
    """Return the pool registers, and columns, with a write that does not hold: bits alone do not order accesses."""
    found: set[int] = set()
    rows = program.instructions
    for pc, row in enumerate(rows):
        bind = rows[pc - 1].bind if pc else None
        if row.dst is not None and row.dst.place in (OWN, TENSOR) and not (bind and bind.hold):
            first = row.dst.index + (TENSOR_FIRST if row.dst.place == TENSOR else 0)
            found |= set(range(first, first + row.dst.count))
    return frozenset(found)
