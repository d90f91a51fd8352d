"""Branches, work items, register budgets and the end of a warp."""

from __future__ import annotations

from abc import abstractmethod

from heddle.errors import UserError
from heddle.ir.warp import Count, Instruction
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.result import Stall


class Branch(UnitModel):
    """What LOOP, SKIP and NEXT_ITEM share: where to go, and the cost of going."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        if self.taken(warp, instruction):
            if instruction.target is None:
                raise UserError(f"{instruction.op} at pc {warp.pc} has no target")
            warp.branch_target = instruction.target
            warp.hold(cycle + self.sm.chip.timing(instruction).latency_cycles, Stall.BRANCH_RESOLVING)

    @abstractmethod
    def taken(self, warp: Warp, instruction: Instruction) -> bool:
        """Apply the branch's own state change and tell whether it is taken."""


class Loop(Branch):
    """LOOP: the test is at the end of the body."""

    def taken(self, warp: Warp, instruction: Instruction) -> bool:
        assert instruction.count is not None
        warp.loops[instruction.level] += 1
        if warp.loops[instruction.level] < count_value(warp, instruction.count):
            return True
        warp.loops[instruction.level] = 0
        return False


class Skip(Branch):
    """SKIP: jumps when the item attribute is zero."""

    def taken(self, warp: Warp, instruction: Instruction) -> bool:
        assert instruction.attribute is not None
        return warp.attribute(instruction.attribute) == 0


class NextItem(Branch):
    """NEXT_ITEM: goes on with the cluster's next item if there is one."""

    def taken(self, warp: Warp, instruction: Instruction) -> bool:
        if not warp.cta.cluster.has_item(warp.item_number + 1):
            return False
        warp.item_number += 1
        return True


class SetRegisters(UnitModel):
    """SET_REGISTERS: costs time only; budgets are the compiler's matter."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        warp.hold(cycle + self.machine.set_registers_cycles, Stall.WAIT)


class Exit(UnitModel):
    """EXIT: the warp ends; the last one of a cluster makes room for another."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        warp.ended = True
        warp.cta.last_exit = max(warp.cta.last_exit, cycle)
        self.sm.chip.note_end(cycle + 1)
        if warp.cta.cluster.ended:
            self.sm.chip.launcher.free(warp.cta.cluster)


def count_value(warp: Warp, count: Count) -> int:
    """Return a loop count for the warp's current item."""
    base = count.value if count.attribute is None else warp.attribute(count.attribute)
    return max(0, base + count.offset)
