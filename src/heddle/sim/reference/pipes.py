"""Execution pipes (condition f) and the instructions that only use a pipe: FIXED and VARIABLE."""

from __future__ import annotations

from heddle.ir.warp import Instruction
from heddle.machine.spec import Machine, OpTiming
from heddle.sim.reference.ticks import TICKS_PER_CYCLE, Server, ticks
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.result import Stall

_MEMORY_PIPES = ("lsu", "tma")  # their throttle has a name of its own


class Pipes:
    """All pipes of one SM: one server for each pipe of scope sm, one for each subpartition otherwise."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._servers: dict[tuple[str, int], Server] = {}
        self.busy = dict.fromkeys(machine.pipes, 0)  # ticks

    def _server(self, pipe: str, subpartition: int) -> Server:
        place = subpartition if self._machine.pipes[pipe].scope == "subpartition" else 0
        return self._servers.setdefault((pipe, place), Server())

    def blocked(self, timing: OpTiming, subpartition: int, cycle: int) -> Stall | None:
        """Return the stall reason while the pipe is busy, else None."""
        if self._server(timing.pipe, subpartition).is_free(cycle):
            return None
        return Stall.MIO_THROTTLE if timing.pipe in _MEMORY_PIPES else Stall.MATH_PIPE_THROTTLE

    def occupy(self, timing: OpTiming, subpartition: int, cycle: int) -> None:
        """Occupy the pipe for the instruction's initiation interval."""
        length = ticks(timing.initiation_cycles)
        self._server(timing.pipe, subpartition).serve(cycle * TICKS_PER_CYCLE, length)
        self.busy[timing.pipe] += length


class PipeUnit(UnitModel):
    """FIXED and VARIABLE: the result is there L cycles after issue."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)

    def reason(self, instruction: Instruction) -> Stall:
        return Stall.MATRIX_SCOREBOARD if instruction.op == "HMMA" else Stall.SHORT_SCOREBOARD
