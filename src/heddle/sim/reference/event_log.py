"""The event log of a simulation (docs/reference/engine.md, section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heddle.ir.warp import Instruction, WarpProgram
from heddle.sim.result import EVENT, EventKind

if TYPE_CHECKING:
    from heddle.sim.reference.cta import Cta
    from heddle.sim.reference.warp import Warp


class EventRecorder:
    """Collects records; `sm_index` maps chip-wide SM numbers to indices of simulated SMs. Off: collects nothing."""

    def __init__(self, program: WarpProgram, sm_index: dict[int, int], *, on: bool) -> None:
        self._program = program
        self._sm_index = sm_index
        self._on = on
        self._records: list[tuple[Any, ...]] = []

    def issue(self, warp: Warp, instruction: Instruction, cycle: int) -> None:
        """Record an issued instruction, before it changes the warp."""
        detail = 0 if warp.acts(instruction) else 1
        self.span(EventKind.ISSUE, warp, cycle, cycle + 1, detail=detail, stage=self.stage(warp, instruction))

    def span(
        self, kind: EventKind, warp: Warp, begin: int, end: int, *, pc: int = -1, detail: int = 0, stage: int = 0
    ) -> None:
        """Record work that a warp's instruction caused (`pc`: default the warp's own)."""
        if not self._on:
            return
        counters = tuple(warp.loops) if kind is EventKind.ISSUE else (0, 0, 0, 0)
        place = (self._sm_index[warp.cta.sm.number], warp.cta.slot, warp.index, warp.pc if pc < 0 else pc)
        self._records.append((int(kind), *place, warp.item(), begin, end, detail, stage, counters))

    def barrier(self, cta: Cta, barrier: int, element: int, cycle: int) -> None:
        """Record a phase completion."""
        if self._on:
            place = (self._sm_index[cta.sm.number], cta.slot, -1, -1, 0)
            self._records.append((int(EventKind.BARRIER), *place, cycle, cycle, barrier, element, (0, 0, 0, 0)))

    def stage(self, warp: Warp, instruction: Instruction) -> int:
        """Return the stage that an instruction works on: its barrier's ring, else its effect's first ring."""
        if instruction.barrier is not None and instruction.barrier.ring is not None:
            return warp.stage(instruction.barrier.ring)
        if instruction.effect is not None:
            effect = self._program.effects[instruction.effect]
            ring = next((a.ring for a in (*effect.reads, *effect.writes) if a.ring is not None), None)
            return warp.stage(ring)
        return 0

    def array(self) -> NDArray[Any] | None:
        """Return all records, or None if the log is off."""
        return np.array(self._records, dtype=EVENT) if self._on else None
