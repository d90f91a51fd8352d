"""Warp-group matrix instructions: WGMMA and its arrive, commit and wait."""

from __future__ import annotations

from heddle.ir.warp import Instruction
from heddle.sim.reference.matrix_unit import element_bytes, rate_scale
from heddle.sim.reference.mbarrier import signal
from heddle.sim.reference.operation import Operation
from heddle.sim.reference.ticks import TICKS_PER_CYCLE, duration, floor_cycles
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.result import EventKind, Stall

GROUP_WARPS = 4


class Collective:
    """The n-th WGMMA of the four warps of a group; times are known once the fourth has issued."""

    def __init__(self) -> None:
        self.members: list[tuple[Warp, Instruction, Operation | None]] = []
        self.start: int | None = None  # ticks
        self.read = 0
        self.complete = 0

    def started(self, cycle: int) -> bool:
        """Tell whether it has started by `cycle`."""
        return self.start is not None and floor_cycles(self.start) <= cycle

    def completed(self, cycle: int) -> bool:
        """Tell whether its result is there by `cycle`."""
        return self.start is not None and floor_cycles(self.complete) <= cycle


class Wgmma(UnitModel):
    """WGMMA."""

    def full(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        earlier = warp.wgmma_issued - self.machine.wgmma_queue_depth
        if earlier < 0 or warp.cta.collective(warp, earlier).started(cycle):
            return None
        return Stall.GMMA

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        collective = warp.cta.collective(warp, warp.wgmma_issued)
        warp.wgmma_issued += 1
        collective.members.append((warp, instruction, warp.operation))
        for counter in (instruction.control.write_barrier, instruction.control.read_barrier):
            warp.begin(counter, self.reason(instruction))
        if len(collective.members) == GROUP_WARPS:
            self._start(collective, warp, instruction, cycle)

    def _start(self, collective: Collective, warp: Warp, instruction: Instruction, cycle: int) -> None:
        """Give the collective its place on the matrix unit when its fourth warp issues."""
        unit = self.sm.matrix
        start = unit.earliest(cycle + 1)
        group = (warp.cta.slot, warp.index // GROUP_WARPS)
        if unit.last_group not in (None, group):
            start += self.machine.wgmma_switch_cycles * TICKS_PER_CYCLE
        unit.last_group = group
        shared_bytes = self._shared_bytes(instruction)
        shared_length = self.sm.shared.length(shared_bytes)
        length = max(self._compute_length(instruction), shared_length)
        unit.occupy(start, length, shared_length)
        unit.note_register_accumulators(start, start + length)
        self.sm.shared.bytes += shared_bytes
        collective.start, collective.read = start, start + length
        collective.complete = collective.read + self.machine.wgmma_tail_cycles * TICKS_PER_CYCLE
        self._record(collective, warp, instruction)
        read, complete = floor_cycles(collective.read), floor_cycles(collective.complete)
        for member, issued, operation in collective.members:
            member.finish(issued.control.write_barrier, complete)
            member.finish(issued.control.read_barrier, read)
            if operation is not None:
                operation.reads_end(read)
                operation.writes_end(complete)

    def _record(self, collective: Collective, warp: Warp, instruction: Instruction) -> None:
        """Log the work, under the name of the first warp of the group."""
        assert collective.start is not None
        first = min((member for member, _, _ in collective.members), key=lambda member: member.index)
        log, read, complete = self.sm.chip.log, floor_cycles(collective.read), floor_cycles(collective.complete)
        stage = log.stage(warp, instruction)
        log.span(EventKind.TENSOR, first, floor_cycles(collective.start), read, pc=warp.pc, stage=stage)
        log.span(EventKind.COMPLETE, first, complete, complete, pc=warp.pc)

    def _shared_bytes(self, instruction: Instruction) -> int:
        m, n, k = instruction.shape or (0, 0, 0)
        elements = n * k + (m * k if instruction.form == "ss" else 0)
        return elements * element_bytes(instruction.dtype)

    def _compute_length(self, instruction: Instruction) -> int:
        m, n, k = instruction.shape or (0, 0, 0)
        rate = self.machine.tensor_flops_per_cycle * rate_scale(self.machine, instruction.dtype)
        floor = self.machine.wgmma_floor_rs_cycles * TICKS_PER_CYCLE if instruction.form == "rs" else 0
        return max(duration(2 * m * n * k, rate), floor)


class WgmmaArrive(UnitModel):
    """WGMMA_ARRIVE: orders register accesses; costs time only."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        warp.hold(cycle + self.machine.wgmma_arrive_cycles, Stall.GMMA)


class WgmmaCommit(UnitModel):
    """WGMMA_COMMIT: the group is complete when the youngest collective of the warp is."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        youngest = warp.wgmma_issued - 1
        warp.wgmma_groups.append(warp.cta.collective(warp, youngest) if youngest >= 0 else None)
        self.release_default(warp, instruction, cycle, extra)


class WgmmaSignal(UnitModel):
    """WGMMA_SIGNAL: with the fourth warp, an arrival when the group's operands have been read."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        number = warp.signals_issued
        warp.signals_issued += 1
        if not warp.cta.signals(warp, number):
            return
        read = 0  # of the youngest collective that all four warps have issued
        if warp.wgmma_issued:
            read = floor_cycles(warp.cta.collective(warp, warp.wgmma_issued - 1).read)
        signal(self.sm.chip.events, warp, instruction, max(cycle, read) + max(1, self.machine.mbarrier_arrive_cycles))


class WgmmaWait(UnitModel):
    """WGMMA_WAIT: all groups but the youngest `pending` must be complete."""

    def waits(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        groups = warp.wgmma_groups[: max(0, len(warp.wgmma_groups) - instruction.pending)]
        done = all(group is None or group.completed(cycle) for group in groups)
        return None if done else Stall.GMMA

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
