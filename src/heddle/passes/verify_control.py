"""Check of control fields, written without the analysis that sets them.

It replays the code as a warp could run it, with every loop taken twice and every skip both ways, at the earliest issue
times that stall counts and pipe intervals allow. Each read and write must find its register settled: by time for
results of known latency, by a counter that was waited for (or by time, where the latency is known) for the rest, by a
wgmma wait for matrix operands and accumulators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from heddle.errors import InternalError, SourceLocation, UserError
from heddle.ir.opcodes import Unit
from heddle.ir.warp import SCOREBOARDS
from heddle.machine.spec import Machine
from heddle.passes.draft import BUSY_BIT, Draft, DraftProgram, RoleDraft
from heddle.passes.timing import KNOWN_WRITERS, LATE_READERS, LATE_WRITERS, Timing, in_order, is_real, places, timing

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class VerifyControl:
    """Raise InternalError for a missing dependence, UserError for a matrix operand touched before its wait."""

    def run(self, program: DraftProgram, machine: Machine) -> DraftProgram:
        """Check all roles and return the program unchanged."""
        for role in program.roles:
            timings = [timing(machine, draft.row) if is_real(draft) else None for draft in role.code]
            touched = [_touched(draft, dict(role.registers)) for draft in role.code]
            held = _held(role)
            skips = any(draft.op in ("SKIP", "BRA.P") for draft in role.code)
            for skips_taken in (False, True) if skips else (False,):
                replay = _Replay(program, role, timings, touched, held)
                for index in trace(role.code, skips_taken):
                    replay.step(index)
        return program


def _held(role: RoleDraft) -> frozenset[Place]:
    """Pool registers that the role states full: full bits, not counters, keep it from writing them too early."""
    stated = (draft.src for draft in role.code if draft.op == BUSY_BIT and draft.row.bit == "full")
    return frozenset(place for operands in stated for place in places(operands, dict(role.registers)))


def trace(code: Sequence[Draft], skips_taken: bool) -> Iterator[int]:
    """Indices in execution order; backward branches are taken once each time their loop is entered."""
    labels = {draft.label: index for index, draft in enumerate(code) if draft.label}
    taken: set[int] = set()
    index = 0
    while index < len(code):
        draft = code[index]
        if is_real(draft):
            yield index
        target = labels[draft.target] if draft.target else index + 1
        if target > index + 1 and not skips_taken:
            target = index + 1
        elif target <= index:
            if index in taken:
                taken.discard(index)
                target = index + 1
            else:
                taken.add(index)
        if draft.op == "EXIT":
            return
        index = target


@dataclass(frozen=True, slots=True)
class _Touched:
    """Registers that an instruction reads, writes, needs to be settled (an accumulator included), and to be read."""

    read: frozenset[Place]
    written: frozenset[Place]
    needed: frozenset[Place]
    unread: frozenset[Place]


def _touched(draft: Draft, registers: dict[int, int]) -> _Touched:
    read = frozenset(places(draft.src, registers))
    more = draft.accumulates or draft.after
    return _Touched(
        read,
        frozenset(places(draft.dst, registers)),
        frozenset(places(draft.reads() + draft.after, registers)) if more else read,
        frozenset(places(draft.after_read, registers)),
    )


@dataclass(slots=True)
class _Pending:
    """A write or read that has not been shown to be finished."""

    producer: int
    done_at: int | None  # cycle, where it is known
    counters: frozenset[int | None]  # any of them at rest means that it is finished


@dataclass(slots=True)
class _Replay:
    program: DraftProgram
    role: RoleDraft
    timings: list[Timing | None]
    touched: list[_Touched]
    held: frozenset[Place] = frozenset()
    now: int = 0
    pipes: dict[str, int] = field(default_factory=dict)
    writes: dict[Place, _Pending] = field(default_factory=dict)
    reads: dict[Place, list[_Pending]] = field(default_factory=dict)
    open_group: list[tuple[frozenset[Place], frozenset[Place]]] = field(
        default_factory=list
    )  # (accumulators, operands)
    groups: list[list[tuple[frozenset[Place], frozenset[Place]]]] = field(default_factory=list)

    def step(self, index: int) -> None:
        """Issue one instruction."""
        draft, timed = self.role.code[index], self.timings[index]
        assert timed is not None
        self.now = max(self.now, self.pipes.get(timed.pipe, 0))
        self._wait(draft)
        self._check(index, draft, timed)
        self._matrix(index, draft, timed)
        self._start(index, draft, timed)
        self.pipes[timed.pipe] = self.now + timed.gap
        self.now += max(1, draft.control.stall)

    def _wait(self, draft: Draft) -> None:
        waited = draft.control.wait
        if not waited <= set(range(SCOREBOARDS)):
            raise InternalError(f"{self.role.body.name}: wait mask {sorted(waited)}")
        if not waited:
            return
        for place in [place for place, p in self.writes.items() if not waited.isdisjoint(p.counters)]:
            del self.writes[place]
        for place in list(self.reads):
            left = [p for p in self.reads[place] if waited.isdisjoint(p.counters)]
            if left:
                self.reads[place] = left
            else:
                del self.reads[place]

    def _check(self, index: int, draft: Draft, timed: Timing) -> None:
        for place in self.touched[index].needed:
            pending = self._pending(place, timed)
            if pending and (pending.done_at is None or pending.done_at > self.now):
                self._fail(index, pending, place, "reads")
        for place in self.touched[index].unread:
            for reader in self.reads.get(place, ()):
                self._fail(index, reader, place, "signals that an operand has been read by")
        for place in self.touched[index].written:
            pending = self._pending(place, timed)
            lands = self.now + timed.latency if timed.latency else self.now + 1
            if pending and (pending.done_at is None or pending.done_at >= lands):
                self._fail(index, pending, place, "overwrites the result of")
            for reader in self.reads.get(place, ()):
                if not in_order(self.timings[reader.producer], timed):
                    self._fail(index, reader, place, "overwrites an operand of")

    def _pending(self, place: Place, timed: Timing) -> _Pending | None:
        """The unfinished write of a register, unless the unit orders the two."""
        pending = self.writes.get(place)
        if pending is None or in_order(self.timings[pending.producer], timed):
            return None
        return pending

    def _start(self, index: int, draft: Draft, timed: Timing) -> None:
        control = draft.control
        for place in self.touched[index].written:
            self.writes.pop(place, None)
            if timed.unit is Unit.GLOBAL and place in self.held:
                continue
            if timed.unit in LATE_WRITERS:
                self.writes[place] = _Pending(index, None, frozenset({control.write_barrier}))
            elif timed.latency:
                counters = frozenset({control.write_barrier}) if timed.unit in KNOWN_WRITERS else frozenset()
                self.writes[place] = _Pending(index, self.now + timed.latency, counters)
        if timed.unit in LATE_READERS:
            for place in self.touched[index].read:
                counters = frozenset({control.read_barrier, control.write_barrier})
                self.reads.setdefault(place, []).append(_Pending(index, None, counters))

    def _matrix(self, index: int, draft: Draft, timed: Timing) -> None:
        """wgmma: registers belong to the matrix unit from the instruction to the wait for its group."""
        if timed.unit is Unit.WGMMA_COMMIT:
            self.groups.append(self.open_group)
            self.open_group = []
        elif timed.unit is Unit.WGMMA_WAIT:
            del self.groups[: max(0, len(self.groups) - draft.row.pending)]
            return
        reads, writes = self.touched[index].read, self.touched[index].written
        for accumulators, operands in [pair for group in [*self.groups, self.open_group] for pair in group]:
            own = writes if timed.unit is Unit.WGMMA else frozenset()
            if (reads & accumulators) or (writes & accumulators) - own or writes & operands:
                self._matrix_fail(index, draft)
        if timed.unit is Unit.WGMMA:
            vector = frozenset(place for place in reads if place[0] == "vector")
            self.open_group.append((writes, vector))

    def _matrix_fail(self, index: int, draft: Draft) -> None:
        source = self.program.sources[draft.row.source]
        raise UserError(
            f"{source.operation} touches registers of a matrix instruction that is still running",
            where=SourceLocation(source.file, source.line) if source.line else self.role.body.where,
            hint="commit and wait for the group first",
        )

    def _fail(self, index: int, pending: _Pending, place: Place, what: str) -> None:
        producer = self.role.code[pending.producer]
        raise InternalError(
            f"{self.role.body.name}: instruction {index} ({self.role.code[index].op}) {what} instruction "
            f"{pending.producer} ({producer.op}) in {place[0]} register {place[1]} too early"
        )
