"""An instruction in flight, as far as its registers go: when bits change after its issue (fiber.md, section 3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from heddle.ir.warp import Instruction
from heddle.ir.warp_fiber import Bind
from heddle.sim.reference.registers import Physical, accumulators, is_matrix, operands, registers, written

if TYPE_CHECKING:
    from heddle.sim.reference.fiber_thread import FiberThread
    from heddle.sim.reference.warp import Warp

UNKNOWN = 1 << 62  # a cycle that is not known yet


def _of_slots(warp: Warp, instruction: Instruction, slots: Iterable[int]) -> tuple[Physical, ...]:
    """Return the registers of some source slots."""
    return tuple(register for slot in slots for register in registers(warp, instruction.src[slot]))


class Operation:
    """Sources, destination and what a bind adds. A unit tells when operands are read and when the result is there."""

    def __init__(self, thread: FiberThread, warp: Warp, instruction: Instruction, bind: Bind) -> None:
        self._thread, self._part, self._bind = thread, warp.subpartition, bind
        self.warp, self.pc, self.matrix = warp, warp.pc, is_matrix(instruction)
        self.sources = operands(warp, instruction) + accumulators(warp, instruction)
        self.written = written(warp, instruction)
        self.scoped = _of_slots(warp, instruction, [slot for slot in bind.consume if slot in bind.scoped])
        self.plain = _of_slots(warp, instruction, [slot for slot in bind.consume if slot not in bind.scoped])
        self.consumed = _of_slots(warp, instruction, bind.consume)
        self.read_end = UNKNOWN  # C
        self.write_end = UNKNOWN  # W
        self._result: int | None = None
        self.superseded: set[Physical] = set()  # a younger matrix instruction clears E of these

    def issue(self, cycle: int) -> None:
        """Set the bits that an issue sets."""
        bits, seen = self._thread.bits, cycle + 1
        bits.change_empty(self.written, True, self._part, seen)
        bits.change_empty(self.plain, True, self._part, seen)
        bits.change_empty(self.scoped, True, self._part, seen, scoped=True)
        if self._bind.hold:
            bits.set_full(self.written, self._bind.readers or (None,), self._part, seen)
        if self._thread.paper:
            bits.set_full(self.sources, (None,), self._part, seen)

    def reads_end(self, cycle: int) -> None:
        """Take note of the cycle in which the operands have been read."""
        self.read_end = max(cycle, self._thread.now + 1)
        self._thread.at(self.read_end, self._consume)
        self._settle()

    def writes_end(self, cycle: int) -> None:
        """Take note of the cycle from which the result is there."""
        self._result = max(cycle, self._thread.now + 1)
        self._settle()

    def _settle(self) -> None:
        """Write back once the operands have been read and the result is there."""
        if self._result is None or self.read_end == UNKNOWN:
            return
        self.write_end = max(self._result, self.read_end)
        if self.written:
            self._thread.at(self.write_end, self._write_back)

    def _consume(self, now: int) -> None:
        bits = self._thread.bits
        bits.clear_full(self.sources if self._thread.paper else self.plain, self._part, now)
        bits.clear_full(self.scoped, self._part, now, part=self._part, scoped=True)
        self._thread.note("read", self, self.sources, now)
        self._thread.note("consume", self, self.consumed, now)

    def _write_back(self, now: int) -> None:
        cleared = tuple(register for register in self.written if register not in self.superseded)
        self._thread.bits.change_empty(cleared, False, self._part, now)
        self._thread.note("write", self, self.written, now)

    def end(self, pool: frozenset[Physical]) -> int:
        """Return the cycle in which it has left the registers of `pool` alone; UNKNOWN if that is not known."""
        reading = self.read_end if pool.intersection(self.sources) else 0
        writing = self.write_end if pool.intersection(self.written) else 0
        return max(reading, writing)
