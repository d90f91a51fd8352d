"""Why a warp did not issue between two of its instructions, told from the log and the program.

The engine may leave waits out of its log. The reason then follows from the instruction before (stall count, barrier,
taken branch), the dependence counters that the next one waits for and what set them, and the next one's unit.
"""

from __future__ import annotations

from collections.abc import Iterator

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import SCOREBOARDS, WarpProgram
from heddle.metrics.stalls import stall_name
from heddle.sim.result import Stall
from heddle.trace._slices import Slice

_AFTER = {
    Unit.BARRIER_SYNC: Stall.BARRIER,
    Unit.CLUSTER_SYNC: Stall.BARRIER,
    Unit.MBARRIER_WAIT: Stall.MBARRIER,
    Unit.WGMMA_ARRIVE: Stall.GMMA,
    Unit.SEM_ACQUIRE: Stall.SEMAPHORE,
}
_CONDITION = {
    Unit.MBARRIER_WAIT: Stall.MBARRIER,
    Unit.WGMMA_WAIT: Stall.GMMA,
    Unit.WGMMA: Stall.GMMA,
    Unit.TCGEN05_MMA: Stall.GMMA,
    Unit.GROUP_WAIT: Stall.LONG_SCOREBOARD,
    Unit.BULK_WAIT: Stall.LONG_SCOREBOARD,
    Unit.SEM_ACQUIRE: Stall.SEMAPHORE,
}
_BUSY = {
    Unit.FIXED: Stall.MATH_PIPE_THROTTLE,
    Unit.VARIABLE: Stall.MATH_PIPE_THROTTLE,
    Unit.SHARED: Stall.MIO_THROTTLE,
    Unit.GLOBAL: Stall.LG_THROTTLE,
    Unit.BULK_LOAD: Stall.MIO_THROTTLE,
    Unit.BULK_STORE: Stall.MIO_THROTTLE,
}
_GLOBAL_UNITS = (Unit.GLOBAL, Unit.BULK_LOAD, Unit.BULK_STORE)


class WaitReasons:
    """Follows one warp through its issues; feed every issue in order."""

    def __init__(self, program: WarpProgram) -> None:
        self.program = program
        self.previous = -1
        self.setters = [-1] * SCOREBOARDS  # pc that set each dependence counter last

    def gap(self, begin: int, end: int, pc: int) -> Iterator[Slice]:
        """Explain cycles [begin, end) before the issue of `pc`, which follows the last one fed."""
        if begin >= end or self.previous < 0:
            return
        instructions = self.program.instructions
        stall_end = min(end, begin - 1 + max(1, instructions[self.previous].control.stall))
        if begin < stall_end:
            yield _wait(begin, stall_end, Stall.WAIT)
            begin = stall_end
        if begin < end:
            yield _wait(begin, end, self._reason(pc))

    def issued(self, pc: int) -> None:
        """Note an issue."""
        control = self.program.instructions[pc].control
        for counter in (control.write_barrier, control.read_barrier):
            if counter is not None:
                self.setters[counter] = pc
        self.previous = pc

    def _reason(self, pc: int) -> Stall:
        before, instruction = self.program.instructions[self.previous], self.program.instructions[pc]
        unit = OPCODES[instruction.op].unit
        if (condition := _CONDITION.get(unit)) is not None:
            return condition
        if (after := _AFTER.get(OPCODES[before.op].unit)) is not None:
            return after
        if pc != self.previous + 1:
            return Stall.BRANCH_RESOLVING
        setters = [self.setters[counter] for counter in instruction.control.wait if self.setters[counter] >= 0]
        if setters:
            return self._scoreboard(max(setters))
        # What is left: a busy pipe or queue, or another warp of the subpartition that went first.
        return _BUSY.get(unit, Stall.NOT_SELECTED)

    def _scoreboard(self, pc: int) -> Stall:
        op = self.program.instructions[pc].op
        if op == "HMMA":
            return Stall.MATRIX_SCOREBOARD
        return Stall.LONG_SCOREBOARD if OPCODES[op].unit in _GLOBAL_UNITS else Stall.SHORT_SCOREBOARD


def _wait(begin: int, end: int, reason: Stall) -> Slice:
    return Slice(begin, end, f"wait: {stall_name(reason)}", {"reason": "inferred"})
