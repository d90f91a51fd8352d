"""Forward data flow of what is still on its way: the analysis behind `set_control`.

The state at a point holds, for each register, the cycles until a result of known latency is there, the instructions
that may still write it, and those that may still read it. Distances count only what is certain: stall counts and pipe
intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from heddle.ir.opcodes import Unit
from heddle.machine.spec import Machine
from heddle.passes.draft import BUSY_BIT, Draft, Operand
from heddle.passes.timing import KNOWN_WRITERS, LATE_READERS, LATE_WRITERS, Timing, in_order, is_real, places, timing

Place = int
"""A register of some file, by a number that the analysis gives it."""
MANY = 16  # results of known latency that a state may hold before the settled ones are dropped
NOBODY: frozenset[int] = frozenset()


@dataclass(slots=True)
class State:
    """See the module. Times are absolute, on a clock of the state's own.

    `known`: long results of known latency, by producer: when they are there, and the registers.
    """

    now: int = 0
    ready: dict[Place, int] = field(default_factory=dict)
    known: dict[int, tuple[int, frozenset[Place]]] = field(default_factory=dict)
    writers: dict[Place, frozenset[int]] = field(default_factory=dict)
    readers: dict[Place, frozenset[int]] = field(default_factory=dict)
    pipes: dict[str, int] = field(default_factory=dict)

    def copy(self) -> State:
        """An independent copy."""
        return State(
            self.now, dict(self.ready), dict(self.known), dict(self.writers), dict(self.readers), dict(self.pipes)
        )

    def drop_past(self) -> None:
        """Forget what is settled."""
        now = self.now
        self.ready = {place: at for place, at in self.ready.items() if at > now}
        self.known = {who: (at, where) for who, (at, where) in self.known.items() if at > now}
        self.pipes = {pipe: at for pipe, at in self.pipes.items() if at > now}

    def merge(self, other: State) -> bool:
        """Take in what may be the case on another path; returns whether anything changed."""
        self.drop_past()
        other.drop_past()
        before, shift = self._size(), self.now - other.now
        for place, at in other.ready.items():
            self.ready[place] = max(at + shift, self.ready.get(place, 0))
        for producer, (at, where) in other.known.items():
            mine_at, mine_where = self.known.get(producer, (0, frozenset()))
            self.known[producer] = (max(at + shift, mine_at), where | mine_where)
        for mine, theirs in ((self.writers, other.writers), (self.readers, other.readers)):
            for place, who in theirs.items():
                mine[place] = mine.get(place, NOBODY) | who
        self.pipes = {p: min(at, other.pipes[p] + shift) for p, at in self.pipes.items() if p in other.pipes}
        return before != self._size()

    def _size(self) -> tuple[int, ...]:
        """A measure that grows (or, for pipes, shrinks) with every change by `merge`."""
        return (
            len(self.ready),
            sum(self.ready.values()) - self.now * len(self.ready),
            sum(at - self.now + len(where) for at, where in self.known.values()),
            sum(len(who) for who in self.writers.values()),
            sum(len(who) for who in self.readers.values()),
            sum(self.pipes.values()) - self.now * len(self.pipes),
        )

    def clear(self, who: frozenset[int], reads_only: bool) -> None:
        """Instructions `who` have read their operands and, unless `reads_only`, written their results."""
        tables = (self.readers,) if reads_only else (self.readers, self.writers)
        for table in tables:
            for place, pending in list(table.items()):
                if pending & who:
                    left = pending - who
                    if left:
                        table[place] = left
                    else:
                        del table[place]
        if not reads_only:
            for producer in who:
                self.known.pop(producer, None)


class Needs(NamedTuple):
    """What an instruction must wait for: results, operand reads, and cycles that the one before must add."""

    results: frozenset[int] = NOBODY
    reads: frozenset[int] = NOBODY
    cycles: int = 0


NOTHING = Needs()


class Hazards:
    """The analysis of one role: `needs[i]` for each instruction, given stall counts and the counters' sharing."""

    def __init__(self, code: Sequence[Draft], registers: dict[int, int], machine: Machine) -> None:
        self.code = code
        self.timings: list[Timing | None] = [timing(machine, d.row) if is_real(d) else None for d in code]
        number = _Numbers(registers)
        self.late_reads = [number.of(d.src) for d in code]
        self.reads = [
            number.of(d.reads() + d.after) if d.accumulates or d.after else late
            for d, late in zip(code, self.late_reads, strict=True)
        ]
        self.unread = [number.of(d.after_read) for d in code]
        self.writes = [number.of(d.dst) for d in code]
        self.touched = [frozenset(r) | frozenset(w) for r, w in zip(self.reads, self.writes, strict=True)]
        self.labels = {d.label: i for i, d in enumerate(code) if d.label}
        self.by_bits = _loads_into_channels(code, self.timings)

    def solve(self, stalls: list[int], together: Mapping[tuple[int, bool], frozenset[int]]) -> list[Needs]:
        """Sweep until nothing changes. `together[(i, reads)]`: all whose counter is at rest once i's is."""
        needs = [NOTHING] * len(self.code)
        arriving: dict[int, State] = {}
        changed = True
        while changed:
            changed = False
            state: State | None = State()
            for index, draft in enumerate(self.code):
                if draft.label:
                    state = self._join(arriving.get(index), state)
                if state is None:
                    continue
                if self.timings[index] is None:
                    for place in self.writes[index]:
                        state.ready.pop(place, None)
                    continue
                needs[index] = self._step(index, state, stalls, together)
                if draft.target:
                    target = self.labels[draft.target]
                    if target in arriving:
                        changed |= arriving[target].merge(state)
                    else:
                        arriving[target], changed = state.copy(), True
                if draft.op == "EXIT":
                    state = None
        return needs

    @staticmethod
    def _join(arriving: State | None, state: State | None) -> State | None:
        if arriving is None:
            return state
        joined = arriving.copy()
        if state is not None:
            joined.merge(state)
        return joined

    def _step(
        self, index: int, state: State, stalls: list[int], together: Mapping[tuple[int, bool], frozenset[int]]
    ) -> Needs:
        timed = self.timings[index]
        assert timed is not None
        state.now = max(state.now, state.pipes.get(timed.pipe, 0))
        needs = self._needs(index, state, timed)
        for who in needs.results:
            state.clear(together.get((who, False), frozenset({who})), reads_only=False)
        for who in needs.reads:
            state.clear(together.get((who, True), frozenset({who})), reads_only=True)
        state.now += needs.cycles
        self._issue(index, state, timed)
        state.now += max(1, stalls[index])
        return needs

    def _needs(self, index: int, state: State, timed: Timing) -> Needs:
        """Most instructions need nothing: each table is looked at only where it has something."""
        results = self._results(index, state)
        reads = NOBODY
        readers = state.readers
        if readers:
            for place in self.unread[index]:
                if place in readers:
                    reads |= readers[place]
            for place in self.writes[index]:
                if place in readers:
                    reads |= readers[place] - results
        if timed.unit is Unit.WEFT_MMA:
            results = frozenset(who for who in results if not in_order(self.timings[who], timed))
            reads = frozenset(who for who in reads if not in_order(self.timings[who], timed))
        cycles = self._cycles(index, state, timed)
        return Needs(results, reads, cycles) if results or reads or cycles else NOTHING

    def _results(self, index: int, state: State) -> frozenset[int]:
        """The instructions whose results it touches, where these may still be on their way."""
        results = NOBODY
        touched = self.touched[index]
        writers = state.writers
        if writers and not touched.isdisjoint(writers):
            for place in touched:
                if place in writers:
                    results |= writers[place]
        for who, (at, where) in state.known.items():
            if at > state.now and not where.isdisjoint(touched):
                results |= {who}
        return results

    def _cycles(self, index: int, state: State, timed: Timing) -> int:
        """How much longer results of known latency take than is left to them."""
        ready = state.ready
        latest = state.now
        for place in self.reads[index]:
            if place in ready and ready[place] > latest:
                latest = ready[place]
        for place in self.writes[index]:
            if place in ready:  # the later write must land later
                latest = max(latest, ready[place] - max(0, timed.latency - 1))
        return latest - state.now

    def _issue(self, index: int, state: State, timed: Timing) -> None:
        writes, ready = self.writes[index], state.ready
        for place in writes:
            ready.pop(place, None)
        if timed.unit in LATE_WRITERS and index not in self.by_bits:
            state.writers.update(dict.fromkeys(writes, frozenset({index})))
        elif timed.latency and timed.unit not in KNOWN_WRITERS:
            ready.update(dict.fromkeys(writes, state.now + timed.latency))
        if timed.unit in KNOWN_WRITERS:
            state.known[index] = (state.now + timed.latency, frozenset(writes))
        if timed.unit in LATE_READERS:
            for place in self.late_reads[index]:
                state.readers[place] = state.readers.get(place, NOBODY) | {index}
        if len(state.known) > MANY:
            state.drop_past()
        if timed.gap > 1:
            state.pipes[timed.pipe] = state.now + timed.gap
        elif timed.pipe in state.pipes:
            del state.pipes[timed.pipe]


class _Numbers:
    """Registers of all files as numbers, which are quicker to look up than pairs."""

    def __init__(self, registers: dict[int, int]) -> None:
        self._registers = registers
        self._numbers: dict[tuple[str, int], Place] = {}

    def of(self, operands: tuple[Operand, ...]) -> tuple[Place, ...]:
        """The number of each element, the same for the same register."""
        if not operands:
            return ()
        numbers = self._numbers
        return tuple(numbers.setdefault(place, len(numbers)) for place in places(operands, self._registers))


def _loads_into_channels(code: Sequence[Draft], timings: Sequence[Timing | None]) -> frozenset[int]:
    """Loads from global memory into pool tensors that this role states full: no later instruction waits for them.

    The full bit keeps the next write back until a reader, which waits for the empty bit, has had the datum.
    """
    channels = {o.value for draft in code if draft.op == BUSY_BIT and draft.row.bit == "full" for o in draft.src}
    loads = (i for i, timed in enumerate(timings) if timed is not None and timed.unit is Unit.GLOBAL)
    return frozenset(i for i in loads if code[i].dst and all(o.value in channels for o in code[i].dst))
