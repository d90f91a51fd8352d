"""Bulk copies of the TMA: BULK_LOAD, BULK_STORE, BULK_PEER, BULK_COMMIT, BULK_WAIT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.errors import UserError
from heddle.ir.warp import Instruction
from heddle.machine.spec import Machine
from heddle.sim.reference.global_memory import all_but_youngest
from heddle.sim.reference.mbarrier import element, landing, peer_of, remote_cycles, signalled
from heddle.sim.reference.ticks import TICKS_PER_CYCLE, Server, duration, floor_cycles
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.result import EventKind, Stall

if TYPE_CHECKING:
    from heddle.sim.reference.cta import Cta

QUEUE_DEPTH = 32  # bulk copies of an SM that may wait (docs/reference/engine.md, section 4, BULK_LOAD)


class BulkCopyEngine:
    """The TMA server of an SM and its queue."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._server = Server()
        self.link = Server()  # to the other SMs of the cluster
        self._starts: list[int] = []
        self.busy = 0  # ticks

    def full(self, cycle: int) -> bool:
        """Tell whether the copy `QUEUE_DEPTH` back has not started yet."""
        return len(self._starts) >= QUEUE_DEPTH and floor_cycles(self._starts[-QUEUE_DEPTH]) > cycle

    def serve(self, cycle: int, amount: int) -> int:
        """Serve a copy of `amount` bytes issued at `cycle`; return its start in ticks."""
        issue = self._machine.tma_issue_cycles * TICKS_PER_CYCLE
        length = max(issue, duration(amount, self._machine.tma_bytes_per_cycle))
        start = self._server.serve(cycle * TICKS_PER_CYCLE, length)
        self._starts.append(start)
        self.busy += length
        return start


class BulkUnit(UnitModel):
    """What loads and stores share: the queue and the reason of their counters."""

    def reason(self, instruction: Instruction) -> Stall:
        return Stall.LONG_SCOREBOARD

    def full(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        return Stall.MIO_THROTTLE if self.sm.bulk.full(cycle) else None


class BulkLoad(BulkUnit):
    """BULK_LOAD: the bytes land in one CTA, or in all of the cluster (multicast)."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        leaves = floor_cycles(self.sm.bulk.serve(cycle, instruction.bytes)) + 1
        latency = self.machine.tma_extra_latency_cycles
        multicast = instruction.ctas > 1
        receivers = warp.cta.cluster.ctas if multicast else [warp.cta]
        answers = self.sm.chip.load(
            warp, instruction, cycle, leaves=leaves, extra_latency=latency, sms=[cta.sm for cta in receivers]
        )
        log = self.sm.chip.log
        for cta, answer in zip(receivers, answers, strict=True):
            self.sm.chip.events.at(answer, cta.sm.shared.landing(instruction.bytes))
            cta.sm.shared.bytes += instruction.bytes
            log.span(EventKind.COPY, warp, cycle, answer, detail=cta.rank, stage=log.stage(warp, instruction))
            self._signal(warp, instruction, cta, answer, multicast=multicast)
            if cta is warp.cta:
                self.release_write(warp, instruction, answer)
        self.release_read(warp, instruction, self.default_read_release(cycle, extra))

    def _signal(self, warp: Warp, instruction: Instruction, cta: Cta, answer: int, *, multicast: bool) -> None:
        """Tell the barrier that the bytes of the copy into `cta` have landed."""
        if instruction.barrier is None:
            return
        owners = [cta] if multicast else signalled(warp, instruction.barrier)
        for owner in owners:
            delay = 0 if multicast else remote_cycles(warp, owner)
            barrier = element(owner, warp, instruction.barrier)
            self.sm.chip.events.at(answer + delay, landing(barrier, instruction.bytes))


class BulkStore(BulkUnit):
    """BULK_STORE: shared memory is read after the TMA has taken the copy; then the data leave."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        start = self.sm.bulk.serve(cycle, instruction.bytes)
        length = self.sm.shared.length(instruction.bytes)
        self.sm.shared.join(start, length)
        self.sm.shared.bytes += instruction.bytes
        source_read = floor_cycles(start + length)
        visible, held = self.sm.chip.store(warp, instruction, cycle, leaves=source_read + 1)
        source_read = max(source_read, held)
        warp.open_bulk.append(source_read)
        log = self.sm.chip.log
        log.span(EventKind.STORE, warp, cycle, source_read, stage=log.stage(warp, instruction))
        warp.cta.note_store(source_read=source_read, visible=visible)
        self.release_write(warp, instruction, visible)
        self.release_read(warp, instruction, source_read)


class BulkPeer(BulkUnit):
    """BULK_PEER: shared memory is read and sent over the link to the other CTA of the pair, where the bytes land."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        amount, receiver = instruction.bytes, peer_of(warp)
        if self.machine.cluster_bytes_per_cycle <= 0:
            raise UserError(f"{instruction.op} at pc {warp.pc}: cluster_bytes_per_cycle of {self.machine.name} is 0")
        start, length = self.sm.bulk.serve(cycle, amount), self.sm.shared.length(amount)
        self.sm.shared.join(start, length)
        sending = duration(amount, self.machine.cluster_bytes_per_cycle)
        sent = self.sm.bulk.link.serve(start, sending) + sending
        answer = floor_cycles(sent) + self.machine.tma_extra_latency_cycles + self.machine.cluster_remote_cycles
        self.sm.chip.events.at(answer, receiver.sm.shared.landing(amount))
        for cta in (warp.cta, receiver):
            cta.sm.shared.bytes += amount
        log = self.sm.chip.log
        log.span(EventKind.COPY, warp, cycle, answer, detail=receiver.rank, stage=log.stage(warp, instruction))
        assert instruction.barrier is not None
        self.sm.chip.events.at(answer, landing(element(receiver, warp, instruction.barrier), amount))
        warp.cta.source_read = max(warp.cta.source_read, floor_cycles(max(start + length, sent)))
        self.release_write(warp, instruction, answer)
        self.release_read(warp, instruction, self.default_read_release(cycle, extra))


class BulkCommit(UnitModel):
    """BULK_COMMIT: the group is complete when the sources of its last store have been read."""

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        warp.bulk_groups.append(max(warp.open_bulk, default=cycle))
        warp.open_bulk = []
        self.release_default(warp, instruction, cycle, extra)


class BulkWait(UnitModel):
    """BULK_WAIT: all groups but the youngest `pending` must be complete."""

    def waits(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        done = all(complete <= cycle for complete in all_but_youngest(warp.bulk_groups, instruction.pending))
        return None if done else Stall.LONG_SCOREBOARD

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        self.release_default(warp, instruction, cycle, extra)
