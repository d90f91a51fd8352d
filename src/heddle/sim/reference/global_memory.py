"""Global loads, stores and cp.async with its groups: GLOBAL, GROUP_COMMIT, GROUP_WAIT."""

from __future__ import annotations

from heddle.ir.warp import Instruction
from heddle.sim.reference.ticks import TICKS_PER_CYCLE, duration, floor_cycles
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.result import EventKind, Stall

L1_BYTES_PER_CYCLE = 128  # width of the path to L1 (docs/reference/engine.md, section 4, GLOBAL)
_STORES = ("STG", "RED")


class GlobalUnit(UnitModel):
    """GLOBAL: LDG, STG, RED, LDGSTS."""

    def reason(self, instruction: Instruction) -> Stall:
        return Stall.LONG_SCOREBOARD

    def full(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        return Stall.LG_THROTTLE if self.sm.lsu.full(warp.subpartition, cycle) else None

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        length = max(TICKS_PER_CYCLE, duration(instruction.bytes, L1_BYTES_PER_CYCLE))
        start = floor_cycles(self.sm.lsu.serve(warp.subpartition, cycle, length))
        log, source_read = self.sm.chip.log, start + 2
        if instruction.op in _STORES:
            answer, held = self.sm.chip.store(warp, instruction, cycle, leaves=start + 1)
            source_read = max(source_read, held)
            warp.cta.note_store(source_read=source_read, visible=answer)
            log.span(EventKind.STORE, warp, cycle, source_read, stage=log.stage(warp, instruction))
        else:
            extra_latency = self.machine.cp_async_extra_latency_cycles if instruction.op == "LDGSTS" else 0
            (answer,) = self.sm.chip.load(warp, instruction, cycle, leaves=start + 1, extra_latency=extra_latency)
            log.span(EventKind.COPY, warp, cycle, answer, detail=warp.cta.rank, stage=log.stage(warp, instruction))
        if instruction.op == "LDGSTS":
            self._copy(warp, instruction, answer)
        self.release_write(warp, instruction, answer)
        self.release_read(warp, instruction, source_read)

    def _copy(self, warp: Warp, instruction: Instruction, answer: int) -> None:
        warp.open_copies.append(answer)
        self.sm.shared.bytes += instruction.bytes
        self.sm.chip.events.at(answer, self.sm.shared.landing(instruction.bytes))


class GroupCommit(UnitModel):
    """GROUP_COMMIT: the open group is complete when its last copy has landed."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        warp.copy_groups.append(max(warp.open_copies, default=cycle))
        warp.open_copies = []
        self.release_default(warp, instruction, cycle, extra)


class GroupWait(UnitModel):
    """GROUP_WAIT: all groups but the youngest `pending` must be complete."""

    def waits(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        done = all(complete <= cycle for complete in all_but_youngest(warp.copy_groups, instruction.pending))
        return None if done else Stall.LONG_SCOREBOARD

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)


def all_but_youngest(groups: list[int], count: int) -> list[int]:
    """Return the groups without the `count` youngest."""
    return groups[: max(0, len(groups) - count)]
