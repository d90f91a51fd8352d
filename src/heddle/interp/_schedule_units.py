"""What the units of an untimed run do: asynchronous operations that end after a random while, barriers, semaphores."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from heddle.errors import UserError
from heddle.interp._boxes import element_of
from heddle.interp._events import WARPS_PER_GROUP
from heddle.interp._schedule_clock import Clock
from heddle.interp._schedule_state import Collective, OpenGroups, RunningCta, RunningWarp
from heddle.ir.opcodes import Unit
from heddle.ir.warp import BarrierRef, Instruction, WarpProgram
from heddle.sim.result import EventKind


class Units:
    """By unit: `ready`, whether a warp's instruction may issue (absent: always), and `act`, what it does."""

    def __init__(self, program: WarpProgram, clock: Clock) -> None:
        self.program, self.clock = program, clock
        self.semaphores: dict[int, int] = {}
        self.columns = {name: index for index, name in enumerate(program.work.attributes)}
        self.depths = {ring.name: ring.depth for ring in program.rings}
        self.barriers = {barrier.name: index for index, barrier in enumerate(program.barriers)}
        self.last_matrix: dict[int, int] = {}
        self.last_visible: dict[tuple[int, int], int] = {}
        self.ready: Mapping[Unit, Callable[[RunningWarp, Instruction], bool]] = {
            Unit.GROUP_WAIT: lambda w, i: w.copies.may_pass(i.pending),
            Unit.WGMMA_WAIT: lambda w, i: w.matrix.may_pass(i.pending),
            Unit.BULK_WAIT: lambda w, i: w.bulk.may_pass(i.pending),
            Unit.MBARRIER_WAIT: self._phase_is_over,
            Unit.SEM_ACQUIRE: lambda w, i: self.semaphores.get(self._semaphore(w, i), 0) >= i.pending,
        }
        self.act: Mapping[Unit, Callable[[RunningWarp, Instruction], None]] = {
            Unit.GLOBAL: self._global,
            Unit.GROUP_COMMIT: lambda w, _i: w.copies.close(),
            Unit.WGMMA: self._wgmma,
            Unit.WGMMA_COMMIT: lambda w, _i: w.matrix.close(),
            Unit.BULK_LOAD: self._bulk_load,
            Unit.BULK_PEER: self._bulk_load,
            Unit.BULK_STORE: self._bulk_store,
            Unit.BULK_COMMIT: lambda w, _i: w.bulk.close(),
            Unit.MBARRIER_EXPECT: self._expect,
            Unit.MBARRIER_ARRIVE: lambda w, i: self._arrive(w, _barrier(i), self._element(w, _barrier(i))),
            Unit.BARRIER_SYNC: lambda w, i: self._meet(w, i, waits=True),
            Unit.BARRIER_ARRIVE: lambda w, i: self._meet(w, i, waits=False),
            Unit.CLUSTER_SYNC: self._meet_cluster,
            Unit.TCGEN05_MMA: self._tcgen05,
            Unit.TCGEN05_COMMIT: self._tcgen05_commit,
            Unit.WGMMA_SIGNAL: self._wgmma_signal,
            Unit.SEM_RELEASE: self._release,
        }

    def attribute(self, warp: RunningWarp, name: str) -> int:
        """Value of an attribute of the warp's item."""
        return int(self.program.work.items[warp.item, self.columns[name]])

    def start(self, warp: RunningWarp, instruction: Instruction) -> Callable[[], None]:
        """Count an operation on its dependence counters; returns what ends it."""
        return self._start(warp, instruction, None)

    def _start(self, warp: RunningWarp, instruction: Instruction, groups: OpenGroups | None) -> Callable[[], None]:
        """Count an operation in its group and on its dependence counters; returns what ends it."""
        number = self.clock.number()
        held = {instruction.control.write_barrier, instruction.control.read_barrier} - {None}
        for k in held:
            warp.pending[k] += 1  # type: ignore[index]
        if groups is not None:
            groups.add(number)

        def finish() -> None:
            for k in held:
                warp.pending[k] -= 1  # type: ignore[index]
            if groups is not None:
                groups.finish(number)

        return finish

    def _global(self, warp: RunningWarp, instruction: Instruction) -> None:
        pc, issued, loads = warp.pc - 1, self.clock.now, instruction.op in ("LDG", "LDGSTS")
        finish = self._start(warp, instruction, warp.copies if instruction.op == "LDGSTS" else None)
        warp.cta.stores += not loads

        def end() -> None:
            finish()
            warp.cta.stores -= not loads

        kind = EventKind.COPY if loads else EventKind.STORE
        self.clock.record(kind, warp, pc, issued, self.clock.after_a_while(end), detail=warp.cta.rank if loads else 0)

    def _bulk_load(self, warp: RunningWarp, instruction: Instruction) -> None:
        pc, issued, ref = warp.pc - 1, self.clock.now, _barrier(instruction)
        element = self._element(warp, ref)
        finish = self._start(warp, instruction, None)
        receivers = warp.cta.cluster.ctas if instruction.ctas > 1 else [warp.cta]
        if ref.cta == "peer":
            receivers = _owners(ref, warp.cta)
        left = [len(receivers)]
        for cta in receivers:
            owner = cta.cluster.ctas[0] if ref.cta == "leader" else cta

            def land(owner: RunningCta = owner) -> None:
                owner.phases[ref.name, element].expected_bytes -= instruction.bytes
                self._test_phase(owner, ref.name, element)
                left[0] -= 1
                if not left[0]:
                    finish()

            self.clock.record(EventKind.COPY, warp, pc, issued, self.clock.after_a_while(land), detail=cta.rank)

    def _bulk_store(self, warp: RunningWarp, instruction: Instruction) -> None:
        finish = self._start(warp, instruction, warp.bulk)
        warp.cta.stores += 1

        def end() -> None:
            finish()
            warp.cta.stores -= 1

        self.clock.record(EventKind.STORE, warp, warp.pc - 1, self.clock.now, self.clock.after_a_while(end))

    def _wgmma(self, warp: RunningWarp, instruction: Instruction) -> None:
        """The fourth warp of a group starts the collective; the collectives of a group end in order."""
        cta, owner, pc = warp.cta, warp.index // WARPS_PER_GROUP * WARPS_PER_GROUP, warp.pc - 1
        queue = cta.cluster.collectives.setdefault((cta.rank, owner), [])
        collective = next((c for c in queue if warp not in c.warps), None)
        if collective is None:
            collective = Collective()
            queue.append(collective)
        collective.warps.append(warp)
        collective.ends.append(self._start(warp, instruction, warp.matrix))
        if len(collective.warps) == WARPS_PER_GROUP:
            queue.remove(collective)
            leader = next(w for w in cta.warps if w.index == owner)
            self._matrix(leader, pc, collective.end)

    def _tcgen05(self, warp: RunningWarp, instruction: Instruction) -> None:
        finish = self._start(warp, instruction, None)
        number = self.clock.number()
        warp.matrix.add(number)

        def end() -> None:
            finish()
            warp.matrix.finish(number)
            self._commits(warp, number)

        self._matrix(warp, warp.pc - 1, end)

    def _matrix(self, warp: RunningWarp, pc: int, end: Callable[[], None]) -> None:
        """Run one matrix instruction on the SM's matrix unit, which is in order."""
        sm = warp.cta.sm
        begin = max(self.clock.now + 1, self.last_matrix.get(sm, 0) + 1)
        read = begin + self.clock.random.randint(1, self.clock.longest_delay // 4 + 1)
        self.last_matrix[sm] = read
        visible = max(
            self.last_visible.get((sm, warp.index), 0),
            read + self.clock.random.randint(0, self.clock.longest_delay // 4),
        )
        self.last_visible[sm, warp.index] = visible
        self.clock.record(EventKind.TENSOR, warp, pc, begin, read)
        self.clock.record(EventKind.COMPLETE, warp, pc, visible, visible)
        self.clock.at(visible, end)

    def _tcgen05_commit(self, warp: RunningWarp, instruction: Instruction) -> None:
        outstanding = list(warp.matrix.open)
        ref = _barrier(instruction)
        warp.commits.append((outstanding, ref, self._element(warp, ref)))
        self._commits(warp, 0)

    def _commits(self, warp: RunningWarp, finished: int) -> None:
        for outstanding, ref, element in list(warp.commits):
            if finished in outstanding:
                outstanding.remove(finished)
            if not outstanding:
                warp.commits.remove((outstanding, ref, element))
                self._arrive(warp, ref, element)

    def _wgmma_signal(self, warp: RunningWarp, instruction: Instruction) -> None:
        """With the fourth warp of a group: arrive when its matrix instructions so far are finished."""
        known = warp.cta.signals.setdefault(warp.index // WARPS_PER_GROUP, [])
        mine = next((signal for signal in known if warp.index not in signal), None)
        if mine is None:
            mine = set()
            known.append(mine)
        mine.add(warp.index)
        if len(mine) < WARPS_PER_GROUP:
            return
        known.remove(mine)
        groups, ref = warp.matrix, _barrier(instruction)
        outstanding = {number for group in (groups.open, *groups.closed) for number in group}
        element = self._element(warp, ref)

        def arrive_when_read() -> None:
            if outstanding & {number for group in (groups.open, *groups.closed) for number in group}:
                self.clock.after_a_while(arrive_when_read)
            else:
                self._arrive(warp, ref, element)

        arrive_when_read()

    # barriers

    def _expect(self, warp: RunningWarp, instruction: Instruction) -> None:
        ref = _barrier(instruction)
        element = self._element(warp, ref)
        for cta in _owners(ref, warp.cta):
            cta.phases[ref.name, element].expected_bytes += instruction.bytes
        self._arrive(warp, ref, element)

    def _arrive(self, warp: RunningWarp, ref: BarrierRef, element: int) -> None:
        for owner in _owners(ref, warp.cta):

            def arrival(owner: RunningCta = owner) -> None:
                owner.phases[ref.name, element].arrived += 1
                self._test_phase(owner, ref.name, element)

            self.clock.after_a_while(arrival)

    def _test_phase(self, cta: RunningCta, name: str, element: int) -> None:
        if cta.phases[name, element].is_over():
            self.clock.record_phase(cta, self.barriers[name], element)

    def _phase_is_over(self, warp: RunningWarp, instruction: Instruction) -> bool:
        ref = _barrier(instruction)
        phase = warp.phases[ref.ring] if ref.ring else 0
        element = self._element(warp, ref)
        return all(cta.phases[ref.name, element].parity != phase ^ ref.flip for cta in _owners(ref, warp.cta))

    def _element(self, warp: RunningWarp, ref: BarrierRef) -> int:
        return element_of(ref, warp.stages, self.depths)

    def _meet(self, warp: RunningWarp, instruction: Instruction, *, waits: bool) -> None:
        cta, number = warp.cta, instruction.barrier_id
        cta.arrived[number] = cta.arrived.get(number, 0) + 1
        waiting = cta.meetings.setdefault(number, [])
        if waits:
            warp.blocked = True
            waiting.append(warp)
        if cta.arrived[number] == (instruction.warps or len(cta.warps)):
            cta.arrived[number] = 0
            self._free(waiting)

    def _meet_cluster(self, warp: RunningWarp, instruction: Instruction) -> None:
        cluster = warp.cta.cluster
        warp.blocked = True
        cluster.meeting.append(warp)
        if len(cluster.meeting) == (instruction.warps or sum(len(cta.warps) for cta in cluster.ctas)):
            self._free(cluster.meeting)

    @staticmethod
    def _free(waiting: list[RunningWarp]) -> None:
        for warp in waiting:
            warp.blocked = False
        waiting.clear()

    def _semaphore(self, warp: RunningWarp, instruction: Instruction) -> int:
        return self.attribute(warp, str(instruction.semaphore))

    def _release(self, warp: RunningWarp, instruction: Instruction) -> None:
        """The semaphore grows once the CTA's stores so far have been made."""
        index = self._semaphore(warp, instruction)

        def grow() -> None:
            if warp.cta.stores:
                self.clock.after_a_while(grow)
            else:
                self.semaphores[index] = self.semaphores.get(index, 0) + 1

        self.clock.after_a_while(grow)


def _barrier(instruction: Instruction) -> BarrierRef:
    if instruction.barrier is None:
        raise UserError(f"{instruction.op} names no mbarrier")
    return instruction.barrier


def _owners(ref: BarrierRef, cta: RunningCta) -> list[RunningCta]:
    if ref.cta == "own":
        return [cta]
    if ref.cta == "peer":
        return [cta.cluster.ctas[cta.rank ^ 1]]
    return cta.cluster.ctas[:1] if ref.cta == "leader" else cta.cluster.ctas


def acts(instruction: Instruction, warp: RunningWarp) -> bool:
    """Tell whether an instruction is not predicated off on this warp."""
    if instruction.by == "warp":
        return True
    return warp.rank == 0 if instruction.by == "role" else warp.rank % WARPS_PER_GROUP == 0
