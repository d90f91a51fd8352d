"""Shared memory and the load/store unit of an SM."""

from __future__ import annotations

from heddle.ir.warp import Instruction
from heddle.machine.spec import Machine
from heddle.sim.reference.events import Action
from heddle.sim.reference.ticks import TICKS_PER_CYCLE, Server, duration, floor_cycles
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.result import Stall


class SharedMemory:
    """The async backlog B of an SM's shared memory, and the bytes that went through it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.backlog = 0  # ticks
        self.bytes = 0

    def length(self, amount: float) -> int:
        """Return the ticks that `amount` bytes take."""
        return duration(amount, self._machine.shared_bytes_per_cycle)

    def join(self, time: int, length: int) -> None:
        """Add work of `length` ticks that arrives at `time` (ticks) to the backlog."""
        self.backlog = max(self.backlog, time) + length

    def landing(self, amount: int) -> Action:
        """Return the effect of `amount` bytes that an asynchronous copy writes."""
        length = self.length(amount * self._machine.shared_async_write_share)
        return lambda cycle: self.join(cycle * TICKS_PER_CYCLE, length)


class LoadStoreUnit:
    """The LSU server of an SM, and one queue for each subpartition."""

    def __init__(self, machine: Machine) -> None:
        self._depth = machine.lsu_queue_depth
        self._server = Server()
        self._starts: list[list[int]] = [[] for _ in range(machine.subpartitions)]

    def full(self, subpartition: int, cycle: int) -> bool:
        """Tell whether the access `lsu_queue_depth` back has not started yet."""
        starts = self._starts[subpartition]
        return len(starts) >= self._depth and floor_cycles(starts[-self._depth]) > cycle

    def serve(self, subpartition: int, cycle: int, length: int) -> int:
        """Serve an access issued at `cycle`; return its start in ticks."""
        start = self._server.serve(cycle * TICKS_PER_CYCLE, length)
        self._starts[subpartition].append(start)
        return start


class SharedUnit(UnitModel):
    """SHARED: LDS, STS, LDSM, STSM."""

    def full(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        return Stall.MIO_THROTTLE if self.sm.lsu.full(warp.subpartition, cycle) else None

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        conflicts = (instruction.conflict_ways - 1) * self.machine.shared_conflict_cycles_per_way
        length = max(TICKS_PER_CYCLE, self.sm.shared.length(instruction.bytes)) + conflicts * TICKS_PER_CYCLE
        start = self.sm.lsu.serve(warp.subpartition, cycle, length)
        self.sm.shared.join(start, length)
        self.sm.shared.bytes += instruction.bytes
        latency = self.sm.chip.timing(instruction).latency_cycles
        self.release_write(warp, instruction, floor_cycles(start + length) - 1 + latency)
        self.release_read(warp, instruction, floor_cycles(start) + 2)
