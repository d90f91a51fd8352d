"""One subpartition: test every resident warp in every cycle, pick one, issue it, account for all.

The conditions a to g and their order are those of docs/reference/engine.md, section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.errors import UserError
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction
from heddle.sim.reference.ports import RegisterPorts
from heddle.sim.reference.registers import is_remote
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.result import Stall

if TYPE_CHECKING:
    from heddle.sim.reference.sm import Sm


class Subpartition:
    """Resident warps, register read ports and the scheduler."""

    def __init__(self, sm: Sm, index: int) -> None:
        self.sm = sm
        self.index = index
        self.warps: list[Warp] = []
        self._last = -1  # bit of the context that issued last
        self.ports = RegisterPorts(
            sm.machine, sm.chip.branch_targets, lambda cycles, cycle: sm.slowed_reads(index, cycles, cycle)
        )
        self._latched_conditions = (self._started, self._ready, self._counters, self._unit)

    def admit(self, warp: Warp) -> None:
        """Make a warp resident."""
        self.warps.append(warp)
        self.warps.sort(key=lambda resident: resident.context)

    def remove(self, warp: Warp) -> None:
        """Let a masked weft leave."""
        self.warps.remove(warp)

    def cycle(self, cycle: int) -> None:
        """Test all warps, issue at most one, and charge one state to each."""
        states = [(warp, self._blocked(warp, cycle)) for warp in self.warps if warp.accounted != cycle]
        ready = {self._bit(warp): warp for warp, reason in states if reason is None}
        chosen = self._choose(ready, cycle) if ready else None
        extra = None if chosen is None else self._read(chosen, cycle)
        selected = Stall.READ_PORT if extra is None else Stall.SELECTED
        for warp, reason in states:
            if reason is None:
                reason = selected if warp is chosen else Stall.NOT_SELECTED
            self.sm.chip.account(warp, reason)
        if chosen is not None and extra is not None:
            self._issue(chosen, cycle, extra)
            self._last = self._bit(chosen)
            self.warps = [warp for warp in self.warps if not warp.ended]

    def _read(self, warp: Warp, cycle: int) -> int | None:
        """Take the read ports that the selected warp needs; return its own conflicts, None if the arbiter denies it."""
        instruction = self._instruction(warp)
        if not warp.acts(instruction):
            self.ports.skip(warp)
            return 0
        if is_remote(instruction):
            return self.sm.arbiter.grant(warp, instruction, cycle)
        return self.ports.read(warp, instruction, cycle)

    def _bit(self, warp: Warp) -> int:
        """Return the place of a warp's context among all contexts of this subpartition."""
        count = len(self.sm.subpartitions)
        contexts = range(self.index, self.sm.chip.program.warps_per_cta, count)  # of one CTA
        return warp.cta.slot * len(contexts) + warp.index // count

    def _choose(self, ready: dict[int, Warp], cycle: int) -> Warp:
        """Let the policy pick one of the warps that could issue."""
        mask = sum(1 << bit for bit in ready)
        bit = self.sm.chip.policy(mask, self._last, self.index, cycle)
        if bit not in ready:
            raise UserError(f"the scheduler policy chose bit {bit} of mask {mask:#b}; it must choose one that is set")
        return ready[bit]

    def _instruction(self, warp: Warp) -> Instruction:
        return self.sm.chip.program.instructions[warp.pc]

    def _model(self, warp: Warp) -> UnitModel:
        return self.sm.units[OPCODES[self._instruction(warp).op].unit]

    def _blocked(self, warp: Warp, cycle: int) -> Stall | None:
        """Return the first condition that fails, or None if the warp could issue."""
        for index, condition in enumerate(self._latched_conditions):
            if index >= warp.latched:
                reason = condition(warp, cycle)
                if reason is not None:
                    return reason
                warp.latched = index + 1
        instruction = self._instruction(warp)
        if not warp.acts(instruction):
            return None
        return (
            self._bits(warp, instruction, cycle)
            or self._model(warp).full(warp, instruction, cycle)
            or self.sm.pipes.blocked(self.sm.chip.timing(instruction), self.index, cycle)
            or (None if is_remote(instruction) else self.ports.blocked(warp, instruction, cycle))
        )

    def _bits(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        """Return the reason while a full or empty bit holds the instruction up; DEPBAR.BIT only names registers."""
        thread = warp.cta.thread
        if thread is None or OPCODES[instruction.op].unit is Unit.BUSY_BIT:
            return None
        return thread.blocked(warp, instruction, cycle)

    def _started(self, warp: Warp, cycle: int) -> Stall | None:
        """Condition a."""
        there = cycle >= warp.start and self.sm.fetch.there(warp.pc, cycle)
        return None if there else Stall.NO_INSTRUCTION

    def _ready(self, warp: Warp, cycle: int) -> Stall | None:
        """Condition b."""
        return None if cycle >= warp.next_ok else warp.next_ok_reason

    def _counters(self, warp: Warp, cycle: int) -> Stall | None:
        """Condition c."""
        for number in sorted(self._instruction(warp).control.wait):
            if not warp.counters[number].at_rest(cycle):
                return warp.counters[number].reason
        return None

    def _unit(self, warp: Warp, cycle: int) -> Stall | None:
        """Condition d; a warp that is predicated off has none."""
        instruction = self._instruction(warp)
        return self._model(warp).waits(warp, instruction, cycle) if warp.acts(instruction) else None

    def _issue(self, warp: Warp, cycle: int, extra: int) -> None:
        instruction, unit = self._instruction(warp), OPCODES[self._instruction(warp).op].unit
        warp.branch_target = warp.operation = None
        bound = warp.take_bound()
        self.sm.chip.log.issue(warp, instruction, cycle)
        if warp.acts(instruction):
            self.sm.pipes.occupy(self.sm.chip.timing(instruction), self.index, cycle)
            self._set_next_ok(warp, cycle + max(1, instruction.control.stall) + extra)
            if warp.cta.thread is not None and unit is not Unit.BUSY_BIT:
                warp.operation = warp.cta.thread.begin(warp, instruction, bound, cycle)
            self._model(warp).issue(warp, instruction, cycle, extra)
        else:
            self._set_next_ok(warp, cycle + max(1, instruction.control.stall))
            for counter in (instruction.control.write_barrier, instruction.control.read_barrier):
                warp.release(counter, cycle + 2, self._model(warp).reason(instruction))
        self._move_on(warp, instruction, cycle)

    def _set_next_ok(self, warp: Warp, cycle: int) -> None:
        warp.next_ok, warp.next_ok_reason = cycle, Stall.WAIT

    def _move_on(self, warp: Warp, instruction: Instruction, cycle: int) -> None:
        """Advance rings and the program counter, and ask for the next instruction."""
        for ring in instruction.advance:
            warp.advance(ring, self.sm.chip.ring_depth[ring])
        warp.latched = 0
        if not warp.ended:
            warp.pc = warp.pc + 1 if warp.branch_target is None else warp.branch_target
            self.sm.fetch.request(warp.pc, cycle)
