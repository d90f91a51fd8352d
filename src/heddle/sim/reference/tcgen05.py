"""Tensor-memory matrix instructions of one SM or a pair: TCGEN05_MMA and TCGEN05_COMMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.errors import UnsupportedError
from heddle.ir.warp import Instruction
from heddle.sim.reference.matrix_unit import element_bytes, rate_scale
from heddle.sim.reference.mbarrier import signal
from heddle.sim.reference.ticks import TICKS_PER_CYCLE, duration, floor_cycles, ticks
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.result import EventKind, Stall

if TYPE_CHECKING:
    from heddle.sim.reference.sm import Sm

_HALF_RATE_ROWS = 64  # m at which one SM runs at half rate (docs/reference/engine.md, TCGEN05_MMA)


class Tcgen05Mma(UnitModel):
    """TCGEN05_MMA: asynchronous, issued by one warp, in order on the matrix unit of each SM that takes part."""

    def full(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        starts, depth = self.sm.tcgen05_starts, self.machine.tcgen05_queue_depth
        waiting = len(starts) >= depth and floor_cycles(starts[-depth]) > cycle
        return Stall.GMMA if waiting else None

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        sms = self._sms(warp, instruction)
        start = max(sm.matrix.earliest(cycle + 1) for sm in sms)
        m, n, k = instruction.shape or (0, 0, 0)
        elements = n // instruction.ctas * k + (m // instruction.ctas * k if instruction.form == "ss" else 0)
        shared_bytes = elements * element_bytes(instruction.dtype)
        shared_length = self.sm.shared.length(shared_bytes)
        products = self._compute_length(instruction)
        length = max(products, shared_length) + ticks(self.machine.tcgen05_overhead_cycles)
        for sm in sms:
            sm.matrix.occupy(start, length, shared_length)
            sm.shared.bytes += shared_bytes
        self.sm.tcgen05_starts.append(start)
        complete = floor_cycles(start + products + self._latency(instruction) * TICKS_PER_CYCLE)
        warp.tcgen05_complete = max(warp.tcgen05_complete, complete)
        log, read = self.sm.chip.log, floor_cycles(start + length)
        log.span(EventKind.TENSOR, warp, floor_cycles(start), read, stage=log.stage(warp, instruction))
        log.span(EventKind.COMPLETE, warp, complete, complete)
        self.release_write(warp, instruction, complete)
        self.release_read(warp, instruction, read)

    def _sms(self, warp: Warp, instruction: Instruction) -> list[Sm]:
        if instruction.ctas == 1:
            return [self.sm]
        first = warp.cta.rank // 2 * 2
        return [warp.cta.cluster.ctas[rank].sm for rank in (first, first + 1)]

    def _compute_length(self, instruction: Instruction) -> int:
        m, n, k = instruction.shape or (0, 0, 0)
        rate = self.machine.tensor_flops_per_cycle * rate_scale(self.machine, instruction.dtype) * instruction.ctas
        if instruction.ctas == 1 and m == _HALF_RATE_ROWS:
            rate /= 2
        return duration(2 * m * n * k, rate)

    def _latency(self, instruction: Instruction) -> int:
        m = (instruction.shape or (0, 0, 0))[0]
        key = f"{instruction.form}_m{m}_{instruction.ctas}cta"
        if key not in self.machine.tcgen05_latency_cycles:
            allowed = ", ".join(sorted(self.machine.tcgen05_latency_cycles))
            raise UnsupportedError(f"{self.machine.name} has no tcgen05 latency for {key!r}; allowed: {allowed}")
        return self.machine.tcgen05_latency_cycles[key]


class Tcgen05Commit(UnitModel):
    """TCGEN05_COMMIT: an arrival when all earlier tcgen05.mma of the warp are complete."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
        when = max(cycle, warp.tcgen05_complete) + max(1, self.machine.tcgen05_commit_cycles)
        signal(self.sm.chip.events, warp, instruction, when)
