"""Random legal schedules: run a program without timing, every choice drawn from a seed, and log what happened.

A program that is right only because of its timing goes wrong under some schedule. The log has the form of the engine's
(docs/reference/engine.md, section 7) and is executed the same way; a cycle is just a step.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.interp._schedule_bits import Bits
from heddle.interp._schedule_clock import Clock
from heddle.interp._schedule_state import RunningCluster, RunningWarp, new_cluster
from heddle.interp._schedule_units import Units, acts
from heddle.interp.hazards import place_of
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, WarpProgram
from heddle.sim.result import EventKind

_PLACES = 16  # clusters that run side by side under schedule `launch`
_LISTED = 8  # warps that a deadlock names
_LONGEST_DELAY = 200  # steps until an asynchronous operation ends


def random_schedule(program: WarpProgram, seed: int, *, longest_delay: int = _LONGEST_DELAY) -> NDArray[Any]:
    """Return the log of one random schedule. Raises UserError naming the waiting warps if no warp can go on."""
    return _Schedule(program, seed, longest_delay).run()


class _Schedule:
    def __init__(self, program: WarpProgram, seed: int, longest_delay: int) -> None:
        self.program, self.clock = program, Clock(seed, longest_delay)
        self.units = Units(program, self.clock)
        self.bits = Bits(program, self.clock)
        self.opcodes = [OPCODES[i.op] for i in program.instructions]
        self.clusters: list[RunningCluster] = []
        self.handed_out = self.launched = 0

    def run(self) -> NDArray[Any]:
        """Run until every item is done."""
        self._launch_first()
        while self.clusters:
            self.clock.step()
            self._replace_finished()
            movable = [w for c in self.clusters for t in c.ctas for w in t.warps if self._can_issue(w)]
            if movable:
                chance = self.clock.random
                for warp in chance.sample(movable, chance.randint(1, len(movable))):
                    if self._can_issue(warp):  # an earlier one of this step may have changed that
                        self._issue(warp)
            elif not self.clock.skip() and self.clusters:
                raise self._deadlock()
        return self.clock.log()

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
        if not acts(instruction, warp):
            return True
        test = self.units.ready.get(self.opcodes[warp.pc].unit)
        return (test is None or test(warp, instruction)) and self.bits.may_issue(warp, instruction)

    def _issue(self, warp: RunningWarp) -> None:
        pc, instruction, unit = warp.pc, self.program.instructions[warp.pc], self.opcodes[warp.pc].unit
        active = acts(instruction, warp)
        self.clock.record(EventKind.ISSUE, warp, pc, self.clock.now, self.clock.now + 1, detail=not active)
        self._step(warp, instruction, unit)
        if active and (action := self.units.act.get(unit)) is not None:
            action(warp, instruction)
        if active:
            self.bits.issue(warp, pc, lambda: self.units.start(warp, instruction))
        for ring in instruction.advance:
            warp.stages[ring] += 1
            if warp.stages[ring] == self.units.depths[ring]:
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
            jump = self.units.attribute(warp, str(instruction.attribute)) == 0
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
        value = count.value if count.attribute is None else self.units.attribute(warp, count.attribute)
        return max(0, value + count.offset)

    def _deadlock(self) -> UserError:
        waiting = [w for c in self.clusters for cta in c.ctas for w in cta.warps if not w.done]
        lines = [
            f"SM {w.cta.sm} warp {w.index} ({w.role.name}) at {place_of(self.program, w.pc)}" for w in waiting[:_LISTED]
        ]
        more = f" and {len(waiting) - _LISTED} more" if len(waiting) > _LISTED else ""
        return UserError(f"deadlock: no warp can go on; waiting: {'; '.join(lines)}{more}")
