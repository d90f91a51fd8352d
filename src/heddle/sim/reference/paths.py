"""Fibers of one warp that part and meet again: one path runs, the other waits."""

from __future__ import annotations

from heddle.errors import UserError
from heddle.ir.warp import Instruction
from heddle.sim.reference.control import count_value
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.result import Stall

FIBERS = 32


class _Paths(UnitModel):
    """What the three instructions share: to go on elsewhere costs as much as a taken branch."""

    def jump(self, warp: Warp, instruction: Instruction, cycle: int, pc: int | None) -> None:
        """Let the warp go on at `pc`."""
        if pc is None:
            raise UserError(f"{instruction.op} at pc {warp.pc} has no target")
        warp.branch_target = pc
        warp.hold(cycle + self.sm.chip.timing(instruction).latency_cycles, Stall.BRANCH_RESOLVING)


class Split(_Paths):
    """BRA.P: the fibers of the role below the count go on, the others branch."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        assert instruction.count is not None
        staying = min(max(count_value(warp, instruction.count) - FIBERS * warp.rank, 0), FIBERS)
        if staying == 0:
            self.jump(warp, instruction, cycle, instruction.target)
        elif staying < FIBERS:
            warp.other_path = instruction.target


class Rejoin(_Paths):
    """BSYNC: this path is at its end; the other one runs, or all are there."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        other, warp.other_path = warp.other_path, None
        if other is not None:
            self.jump(warp, instruction, cycle, other)
        elif instruction.target != warp.pc + 1:
            self.jump(warp, instruction, cycle, instruction.target)


class Yield(_Paths):
    """YIELD: the paths change places."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        if warp.other_path is not None:
            other, warp.other_path = warp.other_path, warp.pc + 1
            self.jump(warp, instruction, cycle, other)
