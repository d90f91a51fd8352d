"""What the wefts of a FIBER-thread share: the bits of its registers, and what is in flight on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from heddle.ir.warp import Instruction
from heddle.ir.warp_fiber import TENSOR_COLUMNS, Bind
from heddle.sim.reference.busy_bits import BusyBits
from heddle.sim.reference.events import Action
from heddle.sim.reference.operation import UNKNOWN, Operation
from heddle.sim.reference.registers import Physical, accumulators, operands, registers, written
from heddle.sim.result import Stall

if TYPE_CHECKING:
    from heddle.sim.reference.cta import Cta
    from heddle.sim.reference.warp import Warp


class Change(NamedTuple):
    """Something that happened to registers: "issue", "read", "consume", "write", "bit" or "all"; in this order."""

    cycle: int
    kind: str
    weft: int
    pc: int
    registers: tuple[Physical, ...]


class FiberThread:
    """Bits and operations of one CTA of a program of mode fiber, on a machine with fine_scheduling."""

    def __init__(self, cta: Cta) -> None:
        chip = cta.cluster.chip
        self._cta, self._events, note = cta, chip.events, chip.program.fiber
        assert note is not None
        self.bits = BusyBits(chip.machine)
        chip.bits.append(self.bits)
        self.paper = chip.machine.busy_bits == "paper"
        self._delay = chip.machine.busy_bit_broadcast_cycles
        parts, columns = range(chip.machine.subpartitions), chip.program.tensor_memory_columns // TENSOR_COLUMNS
        vector = {Physical(part, number) for part in parts for number in range(note.pool_first, note.pool_limit)}
        tensor = {Physical(part, number, True) for part in parts for number in range(columns)}
        self.pool = frozenset(vector | tensor)
        self._flying: list[Operation] = []
        self._bit_changes = 0  # cycle from which all see the last DEPBAR.BIT on the pool
        self.trace: list[Change] = []

    @property
    def now(self) -> int:
        """The current cycle."""
        return self._events.now

    def at(self, cycle: int, action: Action) -> None:
        """Run an action at the start of a later cycle."""
        self._events.at(cycle, action)

    def blocked(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        """Return the reason while a bit of a source or of the destination holds the instruction up."""
        if self.unready(warp, instruction, cycle):
            return Stall.POOL_EMPTY
        return Stall.POOL_FULL if self.unreleased(warp, instruction, cycle) else None

    def unready(self, warp: Warp, instruction: Instruction, cycle: int) -> list[Physical]:
        """Return the sources whose E is set."""
        view, own = warp.subpartition, self._accumulating(warp, cycle)
        tested = (*operands(warp, instruction), *(r for r in accumulators(warp, instruction) if r not in own))
        return [register for register in tested if self.bits.empty(register, view, cycle)]

    def unreleased(self, warp: Warp, instruction: Instruction, cycle: int) -> list[Physical]:
        """Return the registers of the destination whose F is set."""
        return [register for register in written(warp, instruction) if self.bits.full(register, cycle)]

    def _accumulating(self, warp: Warp, cycle: int) -> set[Physical]:
        """Return what matrix instructions of the weft will still write."""
        mine = [op for op in self._flying if op.matrix and op.warp is warp and op.write_end > cycle]
        return {register for op in mine for register in op.written}

    def begin(self, warp: Warp, instruction: Instruction, bound: Bind | None, cycle: int) -> Operation:
        """Issue an instruction: set its bits, and follow it from now on."""
        self._flying = [op for op in self._flying if op.end(op_registers(op)) + self._delay > cycle]
        operation = Operation(self, warp, instruction, bound or Bind())
        self.note("issue", operation, operation.written, cycle)
        operation.issue(cycle)
        if operation.matrix:
            for older in self._flying:
                if older.matrix and older.warp is warp and older.write_end > cycle:
                    older.superseded.update(operation.written)
        if operation.sources or operation.written:
            self._flying.append(operation)
        return operation

    def change_bit(self, warp: Warp, instruction: Instruction, cycle: int) -> None:
        """Do what DEPBAR.BIT says to the registers that it names."""
        named, value, origin = registers(warp, instruction.src[0]), instruction.set_bit, warp.subpartition
        if instruction.bit == "empty":
            self.bits.change_empty(named, value, origin, cycle + 1)
        elif value:
            self.bits.set_full(named, (None,), origin, cycle + 1)
        else:
            self.bits.clear_full(named, origin, cycle + 1)
        if self.pool.intersection(named):
            self._bit_changes = max(self._bit_changes, cycle + 1 + self._delay)
        self.trace.append(Change(cycle, "bit", warp.index, warp.pc, named))

    def at_rest(self, cycle: int) -> bool:
        """Tell whether nothing is in flight on the pool, and all have seen what it did to the bits."""
        ends = [op.end(self.pool) for op in self._flying]
        return all(end == 0 or end + self._delay <= cycle for end in ends) and self._bit_changes <= cycle

    def rest_at(self) -> int | None:
        """Return the cycle in which nothing is in flight on any register and all have seen it; None if not known."""
        ends = [op.end(op_registers(op)) for op in self._flying]
        return None if UNKNOWN in ends else max((end + self._delay for end in ends), default=0)

    def reset(self, seen: int) -> None:
        """Set E and clear F of the pool (SETFIBER with ALL), seen from `seen` on."""
        self.bits.reset(self.pool, seen)
        self.trace.append(Change(seen, "all", -1, -1, ()))

    def unconsumed(self) -> list[Physical]:
        """Return the registers whose F stays set once all changes have been seen."""
        return self.bits.held(UNKNOWN)

    def unfinished(self) -> list[Operation]:
        """Return the operations whose end is not known yet."""
        return [op for op in self._flying if op.end(op_registers(op)) == UNKNOWN]

    def note(self, kind: str, operation: Operation, named: tuple[Physical, ...], cycle: int) -> None:
        """Keep what happened, for whoever compares a run with the state model."""
        if operation.sources or operation.written:
            self.trace.append(Change(cycle, kind, operation.warp.index, operation.pc, named))


def op_registers(operation: Operation) -> frozenset[Physical]:
    """Return all registers of an operation."""
    return frozenset(operation.sources + operation.written)
