"""Instruction fetch after a flush: lines of eight instructions come one by one, once for each SM."""

from __future__ import annotations

from heddle.sim.reference.ticks import TICKS_PER_CYCLE, Server, floor_cycles

LINE_INSTRUCTIONS = 8  # 128 bytes (docs/reference/engine.md, section 3)


class InstructionFetch:
    """When each line of instructions is there for an SM; `miss_cycles` 0: all lines always are."""

    def __init__(self, miss_cycles: int) -> None:
        self._miss = miss_cycles * TICKS_PER_CYCLE
        self._server = Server()
        self._there: dict[int, int] = {}  # line -> cycle

    def request(self, pc: int, cycle: int) -> None:
        """Ask at `cycle` for the line of `pc`, unless it has been asked for."""
        line = pc // LINE_INSTRUCTIONS
        if self._miss and line not in self._there:
            start = self._server.serve(cycle * TICKS_PER_CYCLE, self._miss)
            self._there[line] = floor_cycles(start + self._miss)

    def there(self, pc: int, cycle: int) -> bool:
        """Tell whether the line of `pc` is there at `cycle`."""
        return self._there.get(pc // LINE_INSTRUCTIONS, 0) <= cycle
