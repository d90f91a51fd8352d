"""Random legal schedules: run a program without timing, every choice drawn from a seed, and log what happened.

A program that is right only because of its timing goes wrong under some schedule. The log has the form of the engine's
(docs/reference/engine.md, section 7) and is executed the same way; a cycle is just a step.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.interp._boxes import element_of
from heddle.interp._events import WARPS_PER_GROUP
from heddle.interp._schedule_state import Collective, OpenGroups, RunningCluster, RunningCta, RunningWarp, new_cluster
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import BarrierRef, Instruction, WarpProgram
from heddle.sim.result import EVENT, EventKind

_PLACES = 16  # clusters that run side by side under schedule `launch`
_LONGEST_DELAY = 200  # steps until an asynchronous operation ends


def random_schedule(program: WarpProgram, seed: int, *, longest_delay: int = _LONGEST_DELAY) -> NDArray[Any]:
    """Return the log of one random schedule. Raises UserError naming the waiting warps if no warp can go on."""
    return _Schedule(program, seed, longest_delay).run()


class _Schedule:
    def __init__(self, program: WarpProgram, seed: int, longest_delay: int) -> None:
        self.program, self.random, self.longest_delay = program, random.Random(seed), longest_delay
        self.now = 0
        self.count = 0
        self.records: list[tuple[Any, ...]] = []
        self.later: list[tuple[int, int, Callable[[], None]]] = []
        self.clusters: list[RunningCluster] = []
        self.semaphores: dict[int, int] = {}
        self.columns = {name: index for index, name in enumerate(program.work.attributes)}
        self.depths = {ring.name: ring.depth for ring in program.rings}
        self.opcodes = [OPCODES[i.op] for i in program.instructions]
        self.last_matrix: dict[int, int] = {}
        self.last_visible: dict[tuple[int, int], int] = {}
        self.handed_out = self.launched = 0
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
            Unit.BULK_STORE: self._bulk_store,
            Unit.BULK_COMMIT: lambda w, _i: w.bulk.close(),
            Unit.MBARRIER_EXPECT: self._expect,
            Unit.MBARRIER_ARRIVE: lambda w, i: self._arrive(w, _barrier(i), self._element(w, _barrier(i))),
            Unit.BARRIER_SYNC: lambda w, i: self._meet(w, i, waits=True),
            Unit.BARRIER_ARRIVE: lambda w, i: self._meet(w, i, waits=False),
            Unit.CLUSTER_SYNC: self._meet_cluster,
            Unit.TCGEN05_MMA: self._tcgen05,
            Unit.TCGEN05_COMMIT: self._tcgen05_commit,
            Unit.SEM_RELEASE: self._release,
        }

    def run(self) -> NDArray[Any]:
        """Run until every item is done."""
        self._launch_first()
        while self.clusters:
            self.now += 1
            while self.later and self.later[0][0] <= self.now:
                heapq.heappop(self.later)[2]()
            self._replace_finished()
            movable = [w for c in self.clusters for t in c.ctas for w in t.warps if self._can_issue(w)]
            if movable:
                for warp in self.random.sample(movable, self.random.randint(1, len(movable))):
                    if self._can_issue(warp):  # an earlier one of this step may have changed that
                        self._issue(warp)
            elif self.later:
                self.now = self.later[0][0] - 1
            elif self.clusters:
                raise self._deadlock()
        return np.array(self.records, EVENT)

    # launch

    def _launch_first(self) -> None:
        work = self.program.work
        persistent = work.schedule != "launch"
        for place in range(min(work.grid if persistent else _PLACES, len(work.items))):
            self._launch(place)

    def _launch(self, place: int) -> None:
        size = self.program.cluster_size
        self.clusters.append(new_cluster(self.program, self.launched, place * size, self.handed_out))
        self.handed_out += 1
        self.launched += 1

    def _replace_finished(self) -> None:
        for cluster in [c for c in self.clusters if c.is_over]:
            self.clusters.remove(cluster)
            work = self.program.work
            if work.schedule == "launch" and self.handed_out < len(work.items):
                self._launch(cluster.ctas[0].sm // self.program.cluster_size)

    def _next_item(self, warp: RunningWarp) -> int | None:
        """Return the cluster's next item for this warp; under `dynamic` whoever asks first fixes it for all."""
        work, items = self.program.work, warp.cta.cluster.items
        if warp.ordinal + 1 < len(items):
            return items[warp.ordinal + 1]
        if work.schedule == "launch":
            return None
        item = self.handed_out if work.schedule == "dynamic" else items[-1] + min(work.grid, len(work.items))
        if item >= len(work.items):
            return None
        self.handed_out += work.schedule == "dynamic"
        items.append(item)
        return item

    # issue

    def _can_issue(self, warp: RunningWarp) -> bool:
        if warp.done or warp.blocked:
            return False
        instruction = self.program.instructions[warp.pc]
        if any(warp.pending[k] for k in instruction.control.wait):
            return False
        test = self.ready.get(self.opcodes[warp.pc].unit)
        return test is None or not _acts(instruction, warp) or test(warp, instruction)

    def _issue(self, warp: RunningWarp) -> None:
        pc, instruction, unit = warp.pc, self.program.instructions[warp.pc], self.opcodes[warp.pc].unit
        acts = _acts(instruction, warp)
        detail = 0 if acts else 1
        self._record(EventKind.ISSUE, warp, pc, self.now, self.now + 1, detail=detail, counters=tuple(warp.counters))
        self._step(warp, instruction, unit)
        if acts and (action := self.act.get(unit)) is not None:
            action(warp, instruction)
        for ring in instruction.advance:
            warp.stages[ring] += 1
            if warp.stages[ring] == self.depths[ring]:
                warp.stages[ring] = 0
                warp.phases[ring] ^= 1

    def _step(self, warp: RunningWarp, instruction: Instruction, unit: Unit) -> None:
        """Move the program counter."""
        jump = False
        if unit is Unit.LOOP:
            warp.counters[instruction.level] += 1
            jump = warp.counters[instruction.level] < self._count(warp, instruction)
            if not jump:
                warp.counters[instruction.level] = 0
        elif unit is Unit.SKIP:
            jump = self._attribute(warp, str(instruction.attribute)) == 0
        elif unit is Unit.NEXT_ITEM:
            item = self._next_item(warp)
            jump = item is not None
            if item is not None:
                warp.item, warp.ordinal = item, warp.ordinal + 1
        elif unit is Unit.EXIT:
            warp.done = True
        warp.pc = instruction.target if jump and instruction.target is not None else warp.pc + 1

    def _count(self, warp: RunningWarp, instruction: Instruction) -> int:
        count = instruction.count
        if count is None:
            return 1
        value = count.value if count.attribute is None else self._attribute(warp, count.attribute)
        return max(0, value + count.offset)

    def _attribute(self, warp: RunningWarp, name: str) -> int:
        return int(self.program.work.items[warp.item, self.columns[name]])

    # asynchronous operations

    def _after(self, action: Callable[[], None], at_least: int = 0) -> int:
        """Do something after a random delay; returns when."""
        when = max(self.now + self.random.randint(1, self.longest_delay), at_least)
        self.count += 1
        heapq.heappush(self.later, (when, self.count, action))
        return when

    def _start(self, warp: RunningWarp, instruction: Instruction, groups: OpenGroups | None) -> Callable[[], None]:
        """Count an operation in its group and on its dependence counters; returns what ends it."""
        self.count += 1
        number = self.count
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
        pc, issued, loads = warp.pc - 1, self.now, instruction.op in ("LDG", "LDGSTS")
        finish = self._start(warp, instruction, warp.copies if instruction.op == "LDGSTS" else None)
        warp.cta.stores += not loads

        def end() -> None:
            finish()
            warp.cta.stores -= not loads

        kind = EventKind.COPY if loads else EventKind.STORE
        self._record(kind, warp, pc, issued, self._after(end), detail=warp.cta.rank if loads else 0)

    def _bulk_load(self, warp: RunningWarp, instruction: Instruction) -> None:
        pc, issued, ref = warp.pc - 1, self.now, _barrier(instruction)
        element = self._element(warp, ref)
        finish = self._start(warp, instruction, None)
        receivers = warp.cta.cluster.ctas if instruction.ctas > 1 else [warp.cta]
        left = [len(receivers)]
        for cta in receivers:
            owner = cta.cluster.ctas[0] if ref.cta == "leader" else cta

            def land(owner: RunningCta = owner) -> None:
                owner.phases[ref.name, element].expected_bytes -= instruction.bytes
                self._test_phase(owner, ref.name, element)
                left[0] -= 1
                if not left[0]:
                    finish()

            self._record(EventKind.COPY, warp, pc, issued, self._after(land), detail=cta.rank)

    def _bulk_store(self, warp: RunningWarp, instruction: Instruction) -> None:
        finish = self._start(warp, instruction, warp.bulk)
        warp.cta.stores += 1

        def end() -> None:
            finish()
            warp.cta.stores -= 1

        self._record(EventKind.STORE, warp, warp.pc - 1, self.now, self._after(end))

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
        self.count += 1
        number = self.count
        warp.matrix.add(number)

        def end() -> None:
            finish()
            warp.matrix.finish(number)
            self._commits(warp, number)

        self._matrix(warp, warp.pc - 1, end)

    def _matrix(self, warp: RunningWarp, pc: int, end: Callable[[], None]) -> None:
        """Run one matrix instruction on the SM's matrix unit, which is in order."""
        sm = warp.cta.sm
        begin = max(self.now + 1, self.last_matrix.get(sm, 0) + 1)
        read = begin + self.random.randint(1, self.longest_delay // 4 + 1)
        self.last_matrix[sm] = read
        visible = max(
            self.last_visible.get((sm, warp.index), 0), read + self.random.randint(0, self.longest_delay // 4)
        )
        self.last_visible[sm, warp.index] = visible
        self._record(EventKind.TENSOR, warp, pc, begin, read)
        self._record(EventKind.COMPLETE, warp, pc, visible, visible)
        self.count += 1
        heapq.heappush(self.later, (visible, self.count, end))

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

            self._after(arrival)

    def _test_phase(self, cta: RunningCta, name: str, element: int) -> None:
        if cta.phases[name, element].is_over():
            index = [barrier.name for barrier in self.program.barriers].index(name)
            self.records.append(
                (EventKind.BARRIER, cta.sm, 0, -1, -1, 0, self.now, self.now, index, element, (0, 0, 0, 0))
            )

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
        return self._attribute(warp, str(instruction.semaphore))

    def _release(self, warp: RunningWarp, instruction: Instruction) -> None:
        """The semaphore grows once the CTA's stores so far have been made."""
        index = self._semaphore(warp, instruction)

        def grow() -> None:
            if warp.cta.stores:
                self._after(grow)
            else:
                self.semaphores[index] = self.semaphores.get(index, 0) + 1

        self._after(grow)

    # records

    def _record(
        self,
        kind: EventKind,
        warp: RunningWarp,
        pc: int,
        begin: int,
        end: int,
        *,
        detail: int = 0,
        counters: tuple[int, ...] = (0, 0, 0, 0),
    ) -> None:
        self.records.append((kind, warp.cta.sm, 0, warp.index, pc, warp.item, begin, end, detail, 0, counters))

    def _deadlock(self) -> UserError:
        lines = []
        for cta in (cta for cluster in self.clusters for cta in cluster.ctas):
            for warp in cta.warps:
                if not warp.done:
                    instruction = self.program.instructions[warp.pc]
                    lines.append(f"SM {cta.sm} warp {warp.index} ({warp.role.name}) at pc {warp.pc} {instruction.op}")
        return UserError("deadlock: no warp can go on; waiting: " + "; ".join(lines[:8]))


def _barrier(instruction: Instruction) -> BarrierRef:
    if instruction.barrier is None:
        raise UserError(f"{instruction.op} names no mbarrier")
    return instruction.barrier


def _owners(ref: BarrierRef, cta: RunningCta) -> list[RunningCta]:
    if ref.cta == "own":
        return [cta]
    return cta.cluster.ctas[:1] if ref.cta == "leader" else cta.cluster.ctas


def _acts(instruction: Instruction, warp: RunningWarp) -> bool:
    if instruction.by == "warp":
        return True
    return warp.rank == 0 if instruction.by == "role" else warp.rank % WARPS_PER_GROUP == 0
