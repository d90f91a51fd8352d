"""Replay a log: follow warps through the program, keep what each knows, and perform effects when they happen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from heddle.errors import InternalError
from heddle.interp._boxes import advance
from heddle.interp._channels import Channels
from heddle.interp._clocks import Knowledge, Layout, Source
from heddle.interp._effects import Doing, Effects
from heddle.interp._events import ASYNCHRONOUS_UNITS, WARPS_PER_GROUP, completion_cycles
from heddle.interp._peers import Peers
from heddle.interp._sync import Meetings, PhaseBarriers, Semaphores
from heddle.interp._warps import Cta, House, Warp
from heddle.interp.hazards import Site
from heddle.ir.opcodes import Unit
from heddle.ir.warp import Effect, Instruction, WarpProgram
from heddle.sim.result import EventKind

_NO_EFFECT = Effect(kind="nothing")


class Replay:
    """Feeds the events of one run, in order, to the state of its clusters."""

    def __init__(self, program: WarpProgram, effects: Effects, log: NDArray[Any]) -> None:
        self.program, self.effects = program, effects
        self.layout = Layout.of(program)
        self.house = House(program, self.layout)
        self.depths = {ring.name: ring.depth for ring in program.rings}
        self.phases = PhaseBarriers(program, self.house)
        self.meetings = Meetings(self.house, self.layout)
        self.semaphores = Semaphores(program, self.layout)
        self.peers = Peers(program, self.layout, effects.hazards)
        self.channels = Channels(program, self.layout) if program.mode == "fiber" else None
        self.completions = {key: deque(cycles) for key, cycles in completion_cycles(log).items()}
        self.pending: dict[tuple[int, ...], deque[Doing]] = {}
        self.signals: dict[tuple[int, ...], list[dict[int, Knowledge]]] = {}
        self.units: Mapping[Unit, Callable[[Warp, Instruction, Doing], None]] = {
            Unit.GLOBAL: self._global,
            Unit.GROUP_COMMIT: lambda warp, _i, _d: warp.copies.close(),
            Unit.GROUP_WAIT: lambda warp, i, _d: self._wait(warp, i, Source.COPY_GROUPS),
            Unit.WGMMA: self._wgmma,
            Unit.WGMMA_COMMIT: lambda warp, _i, _d: warp.matrix.close(),
            Unit.WGMMA_WAIT: lambda warp, i, _d: self._wait(warp, i, Source.MATRIX),
            Unit.BULK_LOAD: self._bulk_load,
            Unit.BULK_PEER: self._bulk_load,
            Unit.BULK_STORE: self._bulk_store,
            Unit.BULK_COMMIT: lambda warp, _i, _d: warp.bulk.close(),
            Unit.BULK_WAIT: lambda warp, i, _d: self._wait(warp, i, Source.BULK_GROUPS),
            Unit.MBARRIER_EXPECT: self._arrive,
            Unit.MBARRIER_ARRIVE: self._arrive,
            Unit.MBARRIER_WAIT: lambda warp, i, _d: self.phases.wait(warp, i),
            Unit.BARRIER_SYNC: lambda warp, i, _d: self.meetings.named(warp, i, waits=True),
            Unit.BARRIER_ARRIVE: lambda warp, i, _d: self.meetings.named(warp, i, waits=False),
            Unit.CLUSTER_SYNC: lambda warp, i, _d: self.meetings.cluster(warp, i),
            Unit.TCGEN05_MMA: self._tcgen05,
            Unit.WEFT_MMA: self._weft_mma,
            Unit.BIND: self._bind,
            Unit.TCGEN05_COMMIT: self._tcgen05_commit,
            Unit.WGMMA_SIGNAL: self._wgmma_signal,
            Unit.SEM_RELEASE: lambda warp, i, d: self.semaphores.release(warp, i, d.item),
            Unit.SEM_ACQUIRE: lambda warp, i, d: self.semaphores.acquire(warp, i, d.item),
            Unit.EXIT: lambda warp, _i, d: self._exit(warp, d),
        }

    def run(self, events: NDArray[Any]) -> None:
        """Replay ordered events."""
        handlers = {
            EventKind.ISSUE: self._issue,
            EventKind.COPY: self._copy,
            EventKind.STORE: self._store,
            EventKind.TENSOR: self._tensor,
            EventKind.BARRIER: self.phases.complete,
        }
        by_number = {int(kind): handler for kind, handler in handlers.items()}
        for record in events.tolist():
            by_number[record[0]](record)

    # issues

    def _issue(self, record: tuple[Any, ...]) -> None:
        _, sm, slot, index, pc, item, begin, _, _, _, counters = record
        warp = self.house.warp(sm, slot, index)
        instruction = self.program.instructions[pc]
        self._wait_for_counters(warp, instruction)
        if self.channels is not None:
            self.channels.wait(warp, instruction)
        if _acts(instruction, warp):
            unit = self.house.opcodes[pc].unit
            handler = self.units.get(unit)
            if handler is not None or instruction.effect is not None:
                doing = self._doing(warp, pc, instruction, item, tuple(counters), begin)
                if handler is not None:
                    handler(warp, instruction, doing)
                if instruction.effect is not None and unit not in ASYNCHRONOUS_UNITS:
                    self.effects.perform(doing)
            elif instruction.op == "FENCE":
                warp.fences.append(begin)
        if self.channels is not None and instruction.bind is None:
            self.channels.tell(warp, pc, instruction)
        if instruction.advance:
            advance(warp.rings, instruction.advance, self.depths)

    def _bind(self, warp: Warp, instruction: Instruction, doing: Doing) -> None:
        assert self.channels is not None  # a bind is an instruction of mode fiber
        self.channels.bind(warp, doing.pc, instruction.bind)

    def _doing(
        self, warp: Warp, pc: int, instruction: Instruction, item: int, counters: tuple[int, ...], begin: int
    ) -> Doing:
        """Describe an operation as it is at issue; asynchronous ones get their end and component later."""
        asynchronous = self.house.opcodes[pc].unit in ASYNCHRONOUS_UNITS
        effect = self.program.effects[instruction.effect] if instruction.effect is not None else _NO_EFFECT
        warp.knowledge.learn(warp.component, warp.stamp)
        return Doing(
            warp,
            pc,
            effect,
            item,
            counters,
            dict(warp.rings) if asynchronous else warp.rings,
            warp.knowledge.copy() if asynchronous else warp.knowledge,
            begin,
            begin,
            warp.component,
            warp.stamp,
        )

    def _wait(self, warp: Warp, instruction: Instruction, source: Source) -> None:
        groups = {
            Source.COPY_GROUPS: warp.copies,
            Source.BULK_GROUPS: warp.bulk,
            Source.MATRIX: warp.matrix,
        }[source]
        owner = warp.index // WARPS_PER_GROUP * WARPS_PER_GROUP if source is Source.MATRIX else warp.index
        component = self.layout.of_warp(warp.cta.rank, owner, source)
        warp.knowledge.learn(component, groups.known_after_wait(instruction.pending))

    def _global(self, warp: Warp, instruction: Instruction, doing: Doing) -> None:
        """LDGSTS belongs to the open group; loads and stores of registers are ordered by the warp's scoreboards."""
        if instruction.op == "LDGSTS":
            warp.copies.issued += 1
            doing.component = self.layout.of_warp(warp.cta.rank, warp.index, Source.COPY_GROUPS)
            doing.value = warp.copies.issued
        elif instruction.op != "LDG" and instruction.effect is not None:
            self.effects.take(doing)
        self._await(doing)

    def _bulk_load(self, warp: Warp, instruction: Instruction, doing: Doing) -> None:
        doing.proxy = True
        self.peers.send(doing)
        self._await(doing)

    def _arrive(self, warp: Warp, instruction: Instruction, doing: Doing) -> None:
        self.peers.signal(doing)
        self.phases.arrive(warp, instruction, warp.release())

    def _bulk_store(self, warp: Warp, instruction: Instruction, doing: Doing) -> None:
        warp.bulk.issued += 1
        warp.last_bulk_store = doing.pc
        doing.proxy = True
        doing.component = self.layout.of_warp(warp.cta.rank, warp.index, Source.BULK_GROUPS)
        doing.value = warp.bulk.issued
        self._await(doing)

    def _wgmma(self, warp: Warp, instruction: Instruction, doing: Doing) -> None:
        warp.matrix.issued += 1
        self._matrix(doing, warp.index // WARPS_PER_GROUP * WARPS_PER_GROUP, warp.matrix.issued)

    def _tcgen05(self, warp: Warp, instruction: Instruction, doing: Doing) -> None:
        warp.matrix.issued += 1
        self._matrix(doing, warp.index, warp.matrix.issued)
        self.peers.signal(doing)

    def _weft_mma(self, warp: Warp, instruction: Instruction, doing: Doing) -> None:
        warp.matrix.issued += 1
        for counter in (instruction.control.write_barrier, instruction.control.read_barrier):
            if counter is not None:
                warp.counted[counter] = warp.matrix.issued
        self._matrix(doing, warp.index, warp.matrix.issued)

    def _wait_for_counters(self, warp: Warp, instruction: Instruction) -> None:
        """A wait for a dependence counter: the weft's matrix instructions up to the last with it are finished."""
        finished = [warp.counted[counter] for counter in instruction.control.wait if counter in warp.counted]
        if finished:
            component = self.layout.of_warp(warp.cta.rank, warp.index, Source.MATRIX)
            warp.knowledge.learn(component, max(finished))

    def _matrix(self, doing: Doing, owner: int, number: int) -> None:
        """Queue a matrix instruction; those of one owner run in order, so each knows all earlier ones."""
        cta = doing.warp.cta
        doing.chain = doing.proxy = True
        doing.component = self.layout.of_warp(cta.rank, owner, Source.MATRIX)
        doing.value = number
        self.pending.setdefault((cta.sm, cta.slot, owner), deque()).append(doing)

    def _tcgen05_commit(self, warp: Warp, instruction: Instruction, doing: Doing) -> None:
        """Arrive with what the warp's matrix instructions so far have done, once they are complete.

        The arrival counts as one of them: it is known with its phase, or with that of a later commit.
        """
        warp.matrix.issued += 1
        doing.component = self.layout.of_warp(warp.cta.rank, warp.index, Source.MATRIX)
        doing.value = warp.matrix.issued
        self.peers.signal(doing)
        knowledge = warp.release().copy()
        knowledge.learn(doing.component, doing.value)
        self.phases.arrive(warp, instruction, knowledge)

    def _wgmma_signal(self, warp: Warp, instruction: Instruction, doing: Doing) -> None:
        """The fourth warp of a group arrives with what the group's matrix instructions so far have done."""
        owner = warp.index // WARPS_PER_GROUP * WARPS_PER_GROUP
        known = self.signals.setdefault((warp.cta.sm, warp.cta.slot, owner), [])
        mine = next((signal for signal in known if warp.index not in signal), None)
        if mine is None:
            mine = {}
            known.append(mine)
        mine[warp.index] = warp.release().copy()
        if len(mine) < WARPS_PER_GROUP:
            return
        known.remove(mine)
        knowledge, *others = mine.values()
        for other in others:
            knowledge.join(other)
        doing.component = self.layout.of_warp(warp.cta.rank, owner, Source.MATRIX)
        doing.value = warp.matrix.issued
        self.peers.signal(doing)
        knowledge.learn(doing.component, doing.value)
        self.phases.arrive(warp, instruction, knowledge)

    def _exit(self, warp: Warp, doing: Doing) -> None:
        component = self.layout.of_warp(warp.cta.rank, warp.index, Source.BULK_GROUPS)
        if warp.last_bulk_store >= 0 and not warp.knowledge.knows(warp.cta.cluster.number, component, warp.bulk.issued):
            site = Site(doing.pc, warp.cta.sm, warp.cta.slot, warp.index)
            self.effects.hazards.unfinished(warp.last_bulk_store, site, doing.begin)
        self.peers.exit(doing)
        self.house.exit(warp)

    def _await(self, doing: Doing) -> None:
        cta = doing.warp.cta
        key = (cta.sm, cta.slot, doing.warp.index, doing.pc, doing.begin)
        self.pending.setdefault(key, deque()).append(doing)

    # completions

    def _copy(self, record: tuple[Any, ...]) -> None:
        """A load has landed in the CTA of rank `detail`."""
        _, sm, slot, index, pc, _, begin, end, rank, _, _ = record
        instruction = self.program.instructions[pc]
        key = (sm, slot, index, pc, begin)
        waiting = self.pending.get(key)
        if not waiting:
            raise InternalError(f"a copy of pc {pc} completes at cycle {end} without an issue at cycle {begin}")
        doing = waiting[0]
        doing.end = end
        receiver: Cta = doing.warp.cta
        if self.house.opcodes[pc].unit in (Unit.BULK_LOAD, Unit.BULK_PEER):
            receiver = doing.warp.cta.cluster.ctas[rank]
            self.phases.mark_copy(doing, instruction, receiver)
            self.peers.land(doing, receiver)
        if instruction.effect is not None:
            if receiver is doing.warp.cta:
                self.effects.perform(doing)
            else:
                self.effects.land(doing, receiver)
        doing.landed += 1
        if instruction.ctas <= 1 or doing.landed == self.house.size:
            waiting.popleft()
            if not waiting:
                del self.pending[key]

    def _store(self, record: tuple[Any, ...]) -> None:
        """A store has read its source; its values are in the global tensor from here on."""
        _, sm, slot, index, pc, _, begin, end, _, _, _ = record
        waiting = self.pending.pop((sm, slot, index, pc, begin), None)
        if not waiting:
            raise InternalError(f"a store of pc {pc} completes at cycle {end} without an issue at cycle {begin}")
        doing = waiting[0]
        doing.end = end
        if self.program.instructions[pc].effect is not None:
            self.effects.perform(doing)

    def _tensor(self, record: tuple[Any, ...]) -> None:
        """A matrix instruction has read its operands; its result becomes visible at its COMPLETE."""
        _, sm, slot, index, pc, _, begin, end, _, _, _ = record
        key = (sm, slot, index)
        doings = self._collective(key, pc, end)
        visible = self.completions[key].popleft() if self.completions.get(key) else end
        knowledge = doings[0].knowledge
        for other in doings[1:]:
            knowledge.join(other.knowledge)
        for doing in doings:
            doing.knowledge, doing.begin, doing.end, doing.visible = knowledge, begin, end, visible
            if doing.effect is not _NO_EFFECT:
                self.effects.perform(doing)

    def _collective(self, key: tuple[int, int, int], pc: int, end: int) -> list[Doing]:
        waiting = self.pending.get(key)
        if not waiting:
            raise InternalError(f"the matrix instruction of pc {pc} ends at cycle {end} but was never issued")
        number = min(doing.value for doing in waiting)
        found = [doing for doing in waiting if doing.value == number]
        for doing in found:
            waiting.remove(doing)
        return found


def _acts(instruction: Instruction, warp: Warp) -> bool:
    """Tell whether an instruction is not predicated off on this warp."""
    if instruction.by == "warp":
        return True
    return warp.rank == 0 if instruction.by == "role" else warp.rank % WARPS_PER_GROUP == 0
