"""Say what warps wait for: one sentence a warp, and a report of a deadlock with the cycle of waits if there is one.

A wait's *partners* are the roles whose instructions could end it: those that arrive at the mbarrier (or copy to it),
or meet at the named barrier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, WarpProgram
from heddle.sim import deadlock_fiber
from heddle.sim.core import blocked
from heddle.sim.core import layout as c
from heddle.sim.core.rows import queue_of, waits_of
from heddle.sim.prepare import timing_of
from heddle.sim.result import Stall

if TYPE_CHECKING:
    from heddle.sim.session import Sim

SIGNALS = (
    Unit.MBARRIER_ARRIVE, Unit.MBARRIER_EXPECT, Unit.BULK_LOAD, Unit.BULK_PEER,
    Unit.TCGEN05_COMMIT, Unit.WGMMA_SIGNAL,
)  # fmt: skip
MEETINGS = (Unit.BARRIER_SYNC, Unit.BARRIER_ARRIVE)


@dataclass(frozen=True, slots=True)
class Wait:
    """What one warp waits for, in words, and the roles that could end it."""

    context: int
    warp: str  # who
    place: str  # pc, opcode, source line
    what: str
    role: str
    partners: tuple[str, ...]

    def sentence(self) -> str:
        """Return it as a sentence."""
        by = f"; it needs {' or '.join(self.partners)}" if self.partners else ""
        return f"{self.warp} at {self.place} {self.what}{by}"


def _role_code(program: WarpProgram) -> Iterator[tuple[str, int, Instruction]]:
    """Yield (role, pc, instruction) of all roles' code, up to each EXIT."""
    for role in program.roles:
        for pc in range(role.entry, len(program.instructions)):
            yield role.name, pc, program.instructions[pc]
            if OPCODES[program.instructions[pc].op].unit is Unit.EXIT:
                break


def _line(program: WarpProgram, pc: int) -> str:
    """Return file and line of an instruction, with its tile operation."""
    source = program.instructions[pc].source
    if source >= len(program.sources):
        return "no source line"
    where = program.sources[source]
    return f"{where.file}:{where.line} ({where.operation})"


def _place(program: WarpProgram, pc: int) -> str:
    return f"pc {pc} {program.instructions[pc].op}, {_line(program, pc)},"


def _signallers(program: WarpProgram, name: str) -> dict[str, str]:
    """Return for each role that signals an mbarrier where it does so first."""
    found: dict[str, str] = {}
    for role, pc, instruction in _role_code(program):
        barrier = instruction.barrier
        if barrier is not None and barrier.name == name and OPCODES[instruction.op].unit in SIGNALS:
            found.setdefault(role, f"role {role!r} ({instruction.op} at pc {pc}, {_line(program, pc)})")
    return found


def _meeters(program: WarpProgram, identifier: int) -> dict[str, str]:
    """Return for each role that comes to a named barrier where it does so first."""
    found: dict[str, str] = {}
    for role, pc, instruction in _role_code(program):
        if OPCODES[instruction.op].unit in MEETINGS and instruction.barrier_id == identifier:
            found.setdefault(role, f"role {role!r} ({instruction.op} at pc {pc}, {_line(program, pc)})")
    return found


def _stall(number: int) -> str:
    return Stall(int(number)).name


class _Reader:
    """Reads what warps wait for from the state of a simulation."""

    def __init__(self, sim: Sim) -> None:
        self.sim, self.state, self.program = sim, sim.state, sim.program

    def wait(self, context: int) -> Wait | None:
        """Return what a warp context waits for, None if it does not run."""
        sm, slot, warp = self.sim.extent.contexts()[context]
        at = self.sim.extent.warp(sm, slot, warp)
        if self.state[at + c.W_STATE] == c.ST_DEAD:
            return None
        role = self.program.roles[int(self.state[at + c.W_ROLE])]
        pc = int(self.state[at + c.W_ROW]) // c.P_WORDS
        what, partners = self._what(at, pc)
        who = f"SM {sm} slot {slot} warp {warp} (role {role.name!r})"
        return Wait(context, who, self._where(at, pc), what, role.name, partners)

    def _where(self, at: int, pc: int) -> str:
        """Return the place of a warp; one that waits at a barrier has issued the instruction before."""
        if self.state[at + c.W_STATE] == c.ST_BARRIER:
            pc -= 1
        return _place(self.program, pc)

    def _what(self, at: int, pc: int) -> tuple[str, tuple[str, ...]]:
        """Return what a warp waits for and who could end that."""
        state = int(self.state[at + c.W_STATE])
        kinds = {
            c.ST_MBARRIER: self._mbarrier,
            c.ST_BARRIER: self._barrier,
            c.ST_GMMA: self._collective,
            c.ST_PENDING: self._pending,
            c.ST_SEMAPHORE: self._semaphore,
            c.ST_CANDIDATE: self._candidate,
            c.ST_TIMED: self._time,
            c.ST_MEET: self._meeting,
        }
        return kinds[state](at, pc)

    def _mbarrier(self, at: int, pc: int) -> tuple[str, tuple[str, ...]]:
        barrier = self.program.instructions[pc].barrier
        assert barrier is not None
        ring = [ring.name for ring in self.program.rings].index(barrier.ring) if barrier.ring else -1
        stage = int(self.state[at + c.W_STAGE + ring]) if ring >= 0 else 0
        cta = int(self.state[at + c.W_CTA])
        if barrier.cta != "own":
            cta = int(self.state[self.state[at + c.W_CLUSTER] + c.K_CTAS])
        first = sum(b.count for b in self.program.barriers[: self._barrier_index(barrier.name)])
        record = int(self.state[cta + c.C_MBARRIERS]) + (first + stage + barrier.offset) * c.B_WORDS
        arrived, count = int(self.state[record + c.B_ARRIVED]), int(self.state[record + c.B_COUNT])
        missing = int(self.state[record + c.B_BYTES])
        text = (
            f"waits for mbarrier {barrier.name}[{stage + barrier.offset}] to complete its phase of parity "
            f"{int(self.state[at + c.W_ASK])}: {arrived} of {count} arrivals, {missing} bytes outstanding"
        )
        return text, tuple(_signallers(self.program, barrier.name).values())

    def _barrier_index(self, name: str) -> int:
        return [barrier.name for barrier in self.program.barriers].index(name)

    def _barrier(self, at: int, pc: int) -> tuple[str, tuple[str, ...]]:
        instruction = self.program.instructions[pc - 1]
        if OPCODES[instruction.op].unit is Unit.CLUSTER_SYNC:
            place, name = int(self.state[at + c.W_CLUSTER]) + c.K_ARRIVED, "the cluster barrier"
            partners: tuple[str, ...] = ()
        else:
            place = int(self.state[at + c.W_CTA]) + c.C_NAMED + 2 * instruction.barrier_id
            name = f"named barrier {instruction.barrier_id}"
            partners = tuple(_meeters(self.program, instruction.barrier_id).values())
        return f"waits at {name}: {int(self.state[place])} of {instruction.warps} warps have come", partners

    def _collective(self, at: int, pc: int) -> tuple[str, tuple[str, ...]]:
        group = int(self.state[at + c.W_GROUP])
        formed = int(self.state[group + c.G_FORMED])
        late = [
            f"warp {int(self.state[other + c.W_WARP])}"
            for other in self.state[group + c.G_WARPS : group + c.G_WARPS + 4]
            if self.state[other + c.W_MMA_COUNT] <= formed
        ]
        return f"waits for matrix instruction {formed} of its warp group, not issued by {', '.join(late)}", ()

    def _semaphore(self, at: int, pc: int) -> tuple[str, tuple[str, ...]]:
        name = self.program.instructions[pc].semaphore or ""
        column = self.program.work.attributes.index(name)
        index = int(self.state[self.state[at + c.W_ITEM] + column])
        value = int(self.state[self.sim.extent.base["semaphores"] + index * c.A_WORDS])
        return f"waits for global semaphore {index} to reach {int(self.state[at + c.W_ASK])}; it is {value}", ()

    def _meeting(self, at: int, pc: int) -> tuple[str, tuple[str, ...]]:
        return deadlock_fiber.meeting(self.sim, at), ()

    def _pending(self, at: int, pc: int) -> tuple[str, tuple[str, ...]]:
        if self.state[at + c.W_GROUP]:
            return self._collective(at, pc)
        return "waits for the dependence counter of a matrix instruction that has not started", ()

    def _weft(self, at: int, pc: int) -> tuple[str, tuple[str, ...]] | None:
        """Return what a weft waits for if it is a bit or a matrix queue."""
        held = deadlock_fiber.bit_wait(self.sim, at, pc, lambda pc: _line(self.program, pc))
        queue = deadlock_fiber.weft_queue(self.sim, at, self.program.instructions[pc])
        return held if held is not None or queue is None else (queue, ())

    def _candidate(self, at: int, pc: int) -> tuple[str, tuple[str, ...]]:
        if self.program.mode == "fiber" and (held := self._weft(at, pc)) is not None:
            return held
        if OPCODES[self.program.instructions[pc].op].unit is Unit.WGMMA:
            group = int(self.state[at + c.W_GROUP])
            ahead = int(self.state[at + c.W_MMA_COUNT]) - int(self.state[group + c.G_FORMED])
            if ahead >= self.sim.machine.wgmma_queue_depth:
                return self._collective(at, pc)
        return self._blocked(at, pc), ()

    def _blocked(self, at: int, pc: int) -> str:
        """Return which of conditions e to g holds a warp up, or that none does."""
        state, rows, row = self.state, self.sim.rows, pc * c.P_WORDS
        sub, now = int(state[at + c.W_SUB]), int(state[c.H_TIME])
        cold = int(rows[row + c.P_COLD])
        queue = 0
        if queue_of(rows, row) != c.QUEUE_NONE:
            queue = blocked.queue_until(state, rows, sub, at, row)
        if queue > now:
            return f"waits for a place in its unit's queue until cycle {queue} ({_stall(rows[cold + c.X_QUEUE_CAUSE])})"
        if (pipe := blocked.pipe_until(state, rows, sub, row)) > now:
            name = timing_of(self.sim.machine, self.program.instructions[pc]).pipe
            return f"waits for pipe {name} until cycle {pipe} ({_stall(rows[cold + c.X_PIPE_CAUSE])})"
        if (ports := blocked.ports_until(state, rows, sub, at, row)) > now:
            return f"waits for register read ports until cycle {ports} ({Stall.DISPATCH_STALL.name})"
        return "can issue"

    def _time(self, at: int, pc: int) -> tuple[str, tuple[str, ...]]:
        wake = int(self.state[at + c.W_WAKE])
        if self.state[at + c.W_PHASE]:
            reason = Stall(int(self.state[at + c.W_PHASE_REASON])).name
        else:
            reason = self._own_reason(at)
        return f"goes on in cycle {wake} ({reason})", ()

    def _own_reason(self, at: int) -> str:
        """Return why conditions a to c hold a warp up now."""
        now = int(self.state[c.H_TIME])
        if self.state[at + c.W_FETCH] > now:
            return Stall.NO_INSTRUCTION.name
        if self.state[at + c.W_NEXT_OK] > now:
            return Stall(int(self.state[at + c.W_REASON])).name
        mask = waits_of(self.sim.rows, int(self.state[at + c.W_ROW]))
        for counter in range(c.COUNTERS):
            if mask >> counter & 1 and self.state[at + c.W_AT_REST + counter] > now:
                return f"{Stall(int(self.state[at + c.W_CAUSE + counter])).name}, SB{counter}"
        return Stall.WAIT.name


def why(sim: Sim, context: int) -> str:
    """Say in a sentence what a warp context (index as in `SimResult.stalls`) does or waits for."""
    wait = _Reader(sim).wait(context)
    return f"warp context {context} has ended" if wait is None else wait.sentence()


def _cycle_of_roles(waits: list[Wait], program: WarpProgram) -> list[str]:
    """Return roles each of which waits for the next, and the last for the first; empty if there is no such cycle."""
    names = {role.name for role in program.roles}
    needs: dict[str, set[str]] = {}
    for wait in waits:
        wanted = {name for name in names if any(f"role {name!r}" in partner for partner in wait.partners)}
        needs.setdefault(wait.role, set()).update(wanted - {wait.role})
    for start in needs:
        path = [start]
        while True:
            following = sorted(name for name in needs.get(path[-1], ()) if name in needs)
            if not following:
                break
            if following[0] in path:
                return [*path[path.index(following[0]) :], following[0]]
            path.append(following[0])
    return []


def report(sim: Sim) -> str:
    """Say who waits for what, one line a warp that is stuck, and name a cycle of waits between roles."""
    reader = _Reader(sim)
    waits = [wait for context in range(len(sim.extent.contexts())) if (wait := reader.wait(context)) is not None]
    lines = [f"{sim.program.name}: deadlock after cycle {sim.cycle}: {len(waits)} warps wait and nothing will happen"]
    lines += [f"  {wait.sentence()}" for wait in waits]
    if cycle := _cycle_of_roles(waits, sim.program):
        lines.append("  cycle of waits: " + " -> ".join(f"role {name!r}" for name in cycle))
    return "\n".join(lines)
