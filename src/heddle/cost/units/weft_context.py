"""The weft contexts of a FIBER-thread against the simulator's SET_FIBER_NUM."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from heddle.cost.trace import Trace, Unit
from heddle.ir.opcodes import Unit as OpUnit
from heddle.ir.warp import Instruction, Role
from heddle.ir.warp_fiber import FIBERS
from heddle.machine.spec import Machine
from heddle.sim.reference.events import Events
from heddle.sim.reference.fiber_sync import Meeting
from heddle.sim.reference.warp import Warp

ARRIVE, EXIT, REST, RELAUNCH = 0.3, 0.005, 0.5, 0.2  # how often each happens in a cycle in which it can


class Program:
    """A program in which every weft is at the same SETFIBER."""

    mode = "fiber"
    rings = ()

    def __init__(self, wefts: int) -> None:
        self.warps_per_cta = wefts
        self.setfiber = Instruction(op="SETFIBER", fibers=FIBERS)

    @property
    def instructions(self) -> Program:
        """The instructions, by program counter."""
        return self

    def __getitem__(self, pc: int) -> Instruction:
        return self.setfiber


class Thread:
    """What `Meeting` looks at of a FIBER-thread, its SM and its chip; nothing else happens."""

    def __init__(self, machine: Machine, program: Program, events: Events, start: int) -> None:
        nothing = SimpleNamespace(issue=_nothing, request=_nothing, remove=_nothing, free=_nothing)
        chip = SimpleNamespace(
            events=events, machine=machine, program=program, account=_nothing, log=nothing, ring_depth={},
            note_end=_nothing, launcher=nothing,
        )  # fmt: skip
        self.cluster = SimpleNamespace(chip=chip, ended=False)
        self.sm = SimpleNamespace(
            machine=machine, units={OpUnit.SET_FIBER_NUM: nothing}, fetch=nothing,
            subpartitions=[nothing] * machine.subpartitions,
        )  # fmt: skip
        self.slot, self.last_exit, self.rest, self.reset_at = 0, -1, False, -1
        self.role = Role(name="weft", first_warp=0, warps=program.warps_per_cta, entry=0, registers_per_thread=0)
        self.thread = self
        self.warps = [Warp(cast(Any, self), self.role, 0, start)]
        self.meeting = Meeting(cast(Any, self))

    def places(self) -> list[tuple[Role, int]]:
        """Return the declared wefts."""
        return [(self.role, index) for index in range(self.role.warps)]

    def add(self, warp: Warp) -> None:
        """Let a new weft start."""
        self.warps = [other for other in self.warps if other.index != warp.index] + [warp]

    def ended_by_exit(self) -> set[int]:
        """Return the wefts that do not come back."""
        return {warp.index for warp in self.warps if warp.ended and not warp.masked}

    def at_rest(self, cycle: int) -> bool:
        """Tell whether nothing is in flight on the pool."""
        return self.rest

    def reset(self, seen: int) -> None:
        """Note that the bits of the pool change."""
        self.reset_at = seen

    def collectives_formed(self, index: int) -> int:
        """Return that no warp-group instruction has issued."""
        return 0

    groups_formed = collectives_formed


def _nothing(*arguments: object) -> None:
    """Do nothing: what a meeting tells others is not looked at here."""


class Player:
    """Lets the wefts of one FIBER-thread after another arrive, exit, be masked and start."""

    def __init__(self, machine: Machine, random: Random) -> None:
        self.machine, self.random, self.events = machine, random, Events()
        self.wefts = machine.subpartitions * machine.max_wefts_per_subpartition
        self.program = Program(random.randint(2, self.wefts))
        self.thread: Thread | None = None
        self.waiting: set[int] = set()
        self.before: set[int] = set()
        self.goes_on = 0

    def cycle(self, trace: Trace, cycle: int) -> None:
        """Play one cycle."""
        started = self.thread is not None and not self.thread.meeting.live() and self.random.random() < RELAUNCH
        fired = bool(self.events._actions.get(cycle))
        self.events.run(cycle)
        live = self._live()
        asked = self.program.setfiber
        if fired:
            self.waiting = set()
            self.goes_on = max(cycle - 1 + self.machine.set_fiber_num_cycles, cycle + 1)
        trace.expect(
            live=_word(live), fire=fired, fire_all=fired and asked.all_scope, hold=cycle < self.goes_on,
            ended=not live, masked=_word(self.before - live if fired else ()),
            gone=_word(self.thread.ended_by_exit() if self.thread else ()),
            spawned=_word(live - self.before if fired or cycle == self._launched else ()),
        )  # fmt: skip
        if fired:
            self._next_setfiber()
        leaving = self._move(live, cycle)
        launch = started or self.thread is None
        rest = self.random.random() < REST
        asked = self.program.setfiber
        trace.give(
            launch=launch, declared=self.program.warps_per_cta, waiting=_word(self.waiting), exiting=_word(leaving),
            count=asked.fibers // FIBERS, all_scope=asked.all_scope, at_rest=rest,
        )  # fmt: skip
        if self.thread is not None and not launch:
            self.thread.rest = rest
            self.thread.meeting.end_of_cycle(cycle)
        self.before = live - leaving
        if launch:
            self._launch(cycle)

    _launched = -1

    def _launch(self, cycle: int) -> None:
        self.program = Program(self.random.randint(2, self.wefts))
        self._next_setfiber()
        self.thread = Thread(self.machine, self.program, self.events, cycle + 1)
        self.waiting, self.before, self._launched, self.goes_on = set(), set(), cycle + 1, 0

    def _live(self) -> set[int]:
        return {weft.index for weft in self.thread.meeting.live()} if self.thread else set()

    def _next_setfiber(self) -> None:
        count = self.random.randint(1, self.program.warps_per_cta)
        self.program.setfiber = Instruction(op="SETFIBER", fibers=count * FIBERS, all_scope=self.random.random() < 0.3)

    def _move(self, live: set[int], cycle: int) -> set[int]:
        """Let wefts that may issue arrive or exit; return those that exit."""
        leaving: set[int] = set()
        if self.thread is None or cycle < self.goes_on:
            return leaving
        for weft in self.thread.meeting.live():
            if weft.index in self.waiting:
                continue
            if self.random.random() < EXIT:
                weft.ended = True
                leaving.add(weft.index)
            elif self.random.random() < ARRIVE:
                self.waiting.add(weft.index)
                self.thread.meeting.arrive(weft)
        return leaving


def _word(wefts: Iterable[int]) -> int:
    return sum(1 << weft for weft in wefts)


def play(machine: Machine, random: Random, cycles: int) -> Trace:
    """Let FIBER-threads with random counts of wefts run one after the other."""
    player, trace = Player(machine, random), Trace()
    for cycle in range(cycles):
        player.cycle(trace, cycle)
    return trace


UNIT = Unit("weft_context", play, {"max_wefts_per_subpartition": 4, "set_fiber_num_cycles": 5})
