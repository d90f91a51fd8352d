"""SET_FIBER_NUM: the wefts of a FIBER-thread meet, and their number changes (fiber.md, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.errors import UserError
from heddle.ir.opcodes import Unit
from heddle.ir.warp import Instruction
from heddle.ir.warp_fiber import wefts_of
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.result import Stall

if TYPE_CHECKING:
    from heddle.sim.reference.cta import Cta


class Meeting:
    """Collects the wefts of a FIBER-thread at a SETFIBER; all of them issue it in the cycle after T."""

    def __init__(self, cta: Cta) -> None:
        self._cta, self._chip = cta, cta.cluster.chip
        self._arrived: set[Warp] = set()
        self._set = False  # T is over: the change is about to happen

    def arrive(self, warp: Warp) -> None:
        """Note that conditions a to c of the weft's SETFIBER hold."""
        self._arrived.add(warp)

    def end_of_cycle(self, cycle: int) -> None:
        """Let the meeting take place if all live wefts are there, and the pool is at rest where ALL asks for it."""
        live = self.live()
        if self._set or not live or not self.all_here():
            return
        wanted = {(self._instruction(warp).fibers, self._instruction(warp).all_scope) for warp in live}
        if len(wanted) > 1:
            places = ", ".join(f"weft {warp.index} at pc {warp.pc}" for warp in live)
            raise UserError(f"wefts meet at SETFIBERs that differ in fibers or scope: {places}")
        thread = self._cta.thread
        if next(iter(wanted))[1] and thread is not None and not thread.at_rest(cycle):
            return
        self._set = True
        self._chip.events.at(cycle + 1, self._change)

    def all_here(self) -> bool:
        """Tell whether every live weft has arrived."""
        return self._arrived.issuperset(self.live())

    def live(self) -> list[Warp]:
        """Return the resident wefts."""
        return sorted((warp for warp in self._cta.warps if not warp.ended), key=lambda warp: warp.index)

    def _instruction(self, warp: Warp) -> Instruction:
        return self._chip.program.instructions[warp.pc]

    def _change(self, now: int) -> None:
        """Issue SETFIBER in all live wefts at once, T being the cycle before `now`; mask wefts, or start new ones."""
        live = self.live()
        instruction = self._instruction(live[0])
        count = wefts_of(instruction.fibers)
        goes_on = max(now - 1 + self._chip.machine.set_fiber_num_cycles, now + 1)
        item_number = live[0].item_number
        for warp in live:
            self._issue(warp, now, goes_on, masked=warp.index >= count)
        if instruction.all_scope and self._cta.thread is not None:
            self._cta.thread.reset(now)
        if self._chip.program.mode == "fiber":
            self._spawn(count, item_number, goes_on)
        self._arrived, self._set = set(), False
        if self._cta.cluster.ended:
            self._chip.launcher.free(self._cta.cluster)

    def _issue(self, warp: Warp, now: int, goes_on: int, *, masked: bool) -> None:
        """Issue without an issue slot, a pipe or ports."""
        instruction = self._instruction(warp)
        self._chip.account(warp, Stall.SELECTED)
        self._chip.log.issue(warp, instruction, now)
        warp.operation = None
        self._cta.sm.units[Unit.SET_FIBER_NUM].issue(warp, instruction, now, 0)
        warp.next_ok, warp.next_ok_reason = goes_on, Stall.FIBER_SYNC
        warp.accounted = now
        for ring in instruction.advance:
            warp.advance(ring, self._chip.ring_depth[ring])
        warp.latched = 0
        if masked:
            self._mask(warp, now)
        else:
            warp.pc += 1
            self._cta.sm.fetch.request(warp.pc, now)

    def _mask(self, warp: Warp, now: int) -> None:
        """End a weft as EXIT would; it may come back as a new one."""
        warp.ended = warp.masked = True
        self._cta.last_exit = max(self._cta.last_exit, now)
        self._chip.note_end(now + 1)
        self._cta.sm.subpartitions[warp.subpartition].remove(warp)

    def _spawn(self, count: int, item_number: int, start: int) -> None:
        """Start the wefts below `count` that do not exist; one that ended by EXIT does not come back."""
        taken = {warp.index for warp in self._cta.warps if not warp.masked}
        for role, index in self._cta.places():
            if index < count and index not in taken:
                warp = Warp(self._cta, role, index, start)
                warp.item_number = item_number
                self._cta.add(warp)


class SetFiberNum(UnitModel):
    """SETFIBER: a weft that arrives waits; `Meeting` issues it."""

    def waits(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        warp.cta.meeting.arrive(warp)
        return Stall.FIBER_SYNC

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
