"""The busy bitmap against the simulator's full and empty bits, all of them in every cycle."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from heddle.cost.trace import Trace, Unit, pack
from heddle.cost.units.operands import bits_of
from heddle.machine.spec import Machine
from heddle.sim.reference.busy_bits import BusyBits
from heddle.sim.reference.registers import Physical

SIZE_BITS = 3  # of the log2 of a group's registers, as the module has it
SIZES = (0, 0, 1, 2, 3)
EMPTY_SETS, EMPTY_CLEARS, FULL_SETS, FULL_CLEARS, LOOKUPS = 5, 3, 1, 5, 4  # of a subpartition in a cycle, as there
BUSY = 0.25  # how many of these do something
ALL = 0.01  # how often SETFIBER with ALL comes


@dataclass(frozen=True, slots=True)
class Group:
    """An aligned group of registers, and what is special about a change: scoped, or parts of F."""

    place: int
    number: int
    size: int
    extra: int = 0

    def registers(self) -> list[Physical]:
        """Return them as the simulator names them."""
        return [Physical(self.place, self.number + k) for k in range(1 << self.size)]


class Player:
    """Makes random changes of a cycle, to the simulator's bits and as ports of the module."""

    def __init__(self, machine: Machine, random: Random) -> None:
        self.parts, self.limit = machine.subpartitions, machine.vector_registers // machine.subpartitions
        self.bits, self.random = BusyBits(machine), random
        self.all_parts = (1 << self.parts + 1) - 1

    def cycle(self, trace: Trace, cycle: int) -> None:
        """Look bits up, compare them all, and let changes begin that are seen from the next cycle on."""
        self._look(trace, cycle)
        sets = self._bundle(EMPTY_SETS, lambda origin: int(self.random.random() < 0.3))
        clears = self._bundle(EMPTY_CLEARS, lambda origin: 0)
        holds = self._bundle(
            FULL_SETS, lambda origin: self.random.choice((1 << self.parts, self.random.randrange(1, 1 << self.parts)))
        )
        releases = self._bundle(FULL_CLEARS, lambda origin: self.random.choice((self.all_parts, 1 << origin)))
        self._change_bits(sets, clears, holds, releases, cycle + 1)
        trace.give(empty_set_scoped=pack((group.extra if group else 0 for group in sets), 1))
        parts = self.parts + 1
        trace.give(full_set_parts=pack((group.extra if group else 0 for group in holds), parts))
        trace.give(full_clear_parts=pack((group.extra if group else 0 for group in releases), parts))
        for name, groups in (
            ("empty_set", sets),
            ("empty_clear", clears),
            ("full_set", holds),
            ("full_clear", releases),
        ):
            self._give(trace, name, groups)
        self._range(trace, cycle + 1)

    def _group(self, extra: int = 0) -> Group:
        size = self.random.choice(SIZES)
        number = self.random.randrange(self.limit) >> size << size
        return Group(self.random.randrange(self.parts), number, size, extra)

    def _bundle(self, count: int, extra: object) -> list[Group | None]:
        """Return `count` changes of each origin, None for those that do nothing."""
        assert callable(extra)
        return [
            self._group(extra(origin)) if self.random.random() < BUSY else None
            for origin in range(self.parts)
            for _ in range(count)
        ]

    def _change_bits(
        self,
        sets: list[Group | None],
        clears: list[Group | None],
        holds: list[Group | None],
        releases: list[Group | None],
        seen: int,
    ) -> None:
        bits = self.bits
        for place, group in enumerate(sets):
            if group:
                bits.change_empty(group.registers(), True, place // EMPTY_SETS, seen, scoped=bool(group.extra))
        for place, group in enumerate(clears):
            if group:
                bits.change_empty(group.registers(), False, place // EMPTY_CLEARS, seen)
        for place, group in enumerate(releases):
            origin = place // FULL_CLEARS
            if group and group.extra == self.all_parts:
                bits.clear_full(group.registers(), origin, seen)
            elif group:
                bits.clear_full(group.registers(), origin, seen, part=origin, scoped=True)
        for place, group in enumerate(holds):
            if group:
                readers = [k for k in range(self.parts) if group.extra >> k & 1]
                bits.set_full(group.registers(), readers or (None,), place // FULL_SETS, seen)

    def _range(self, trace: Trace, seen: int) -> None:
        """SETFIBER with ALL, now and then."""
        pool = self.random.random() < ALL
        bounds = [sorted(self.random.randrange(self.limit + 1) for _ in range(2)) for _ in range(self.parts)]
        if pool:
            named = [Physical(place, k) for place, (first, limit) in enumerate(bounds) for k in range(first, limit)]
            self.bits.reset(named, seen)
        width = bits_of(self.limit) + 1
        trace.give(
            range_valid=pool, range_empty=1, range_first=pack((first for first, _ in bounds), width),
            range_limit=pack((limit for _, limit in bounds), width),
        )  # fmt: skip

    def _give(self, trace: Trace, name: str, groups: list[Group | None]) -> None:
        trace.give(
            **{
                f"{name}_valid": pack((group is not None for group in groups), 1),
                f"{name}_place": pack((group.place if group else 0 for group in groups), bits_of(self.parts)),
                f"{name}_number": pack((group.number if group else 0 for group in groups), bits_of(self.limit)),
                f"{name}_size": pack((group.size if group else 0 for group in groups), SIZE_BITS),
            }
        )

    def _look(self, trace: Trace, cycle: int) -> None:
        """Let random instructions test their sources and destinations, and compare every bit."""
        sources = self._bundle(LOOKUPS, lambda origin: 0)
        targets = [self._group() if self.random.random() < 0.5 else None for _ in range(self.parts)]
        self._give(trace, "source", sources)
        trace.give(
            destination_valid=pack((group is not None for group in targets), 1),
            destination_number=pack((group.number if group else 0 for group in targets), bits_of(self.limit)),
            destination_size=pack((group.size if group else 0 for group in targets), SIZE_BITS),
        )
        places, numbers = range(self.parts), range(self.limit)
        empty = [[[self.bits.empty(Physical(h, r), v, cycle) for r in numbers] for h in places] for v in places]
        full = [[self.bits.full(Physical(h, r), cycle) for r in numbers] for h in places]
        unready, unreleased = [False] * self.parts, [False] * self.parts
        for place, group in enumerate(sources):
            if group:
                view = place // LOOKUPS
                unready[view] |= any(empty[view][group.place][r.number] for r in group.registers())
        for place, group in enumerate(targets):
            if group:
                unreleased[place] = any(full[place][r.number] for r in group.registers())
        trace.expect(
            pool_empty=pack(unready, 1), pool_full=pack(unreleased, 1),
            empty=pack((bit for view in empty for home in view for bit in home), 1),
            full=pack((bit for home in full for bit in home), 1),
        )  # fmt: skip


def play(machine: Machine, random: Random, cycles: int) -> Trace:
    """Let random changes of all origins happen to the simulator's bits."""
    player, trace = Player(machine, random), Trace()
    for cycle in range(cycles):
        player.cycle(trace, cycle)
    return trace


UNIT = Unit("busy_bitmap", play, {"vector_registers": 64})
