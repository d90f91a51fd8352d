"""The simulated part of the chip: clock, events, SMs, memory, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heddle.errors import UserError
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, Stream, StreamRef, WarpProgram
from heddle.machine.spec import Machine, OpTiming
from heddle.sim.reference.busy_bits import BusyBits
from heddle.sim.reference.event_log import EventRecorder
from heddle.sim.reference.events import Events
from heddle.sim.reference.fiber_thread import Change
from heddle.sim.reference.launch import Launcher
from heddle.sim.reference.memory import MemorySystem, Request, block_spaces
from heddle.sim.reference.schedulers import Policy
from heddle.sim.reference.semaphore import Semaphores
from heddle.sim.reference.setup import Setup
from heddle.sim.reference.sm import Sm
from heddle.sim.reference.stuck import stuck_report, unfinished
from heddle.sim.reference.warp import Warp
from heddle.sim.result import Stall

QUIET_LIMIT_CYCLES = 100_000  # cycles without an issue, and no event to come, after which the program is stuck


class Chip:
    """Advances time one cycle at a time until every warp has ended."""

    def __init__(
        self,
        program: WarpProgram,
        machine: Machine,
        setup: Setup,
        memory: MemorySystem,
        policy: Policy,
        log: EventRecorder,
    ) -> None:
        self.program, self.machine, self.setup = program, machine, setup
        self.memory, self.policy, self.log = memory, policy, log
        self.events = Events()
        self.semaphores = Semaphores()
        self.ring_depth = {ring.name: ring.depth for ring in program.rings}
        targets = {i.target for i in program.instructions if i.target is not None}
        self.branch_targets = targets | {role.entry for role in program.roles}
        self.has_bits = program.mode == "fiber" and machine.fine_scheduling
        self.meets = any(OPCODES[i.op].unit is Unit.SET_FIBER_NUM for i in program.instructions)
        self.warnings: list[str] = []
        self.bits: list[BusyBits] = []
        self.traces: list[list[Change]] = []  # of each FIBER-thread
        self.sms = {number: Sm(self, number) for number in setup.sm_numbers}
        self.launcher = Launcher(self)
        self.end = 0  # cycle after the last exit, or in which the last store is visible
        self.issued = 0
        self.stalls: dict[tuple[int, int], np.ndarray] = {}  # (SM, context) -> cycles by state
        self.stalls_pc = np.zeros((len(program.instructions), len(Stall)), dtype=np.int64)
        self._streams = {stream.name: stream for stream in program.streams}
        self._spaces = block_spaces(program, machine.dram_interleave_bytes)
        self._timings: dict[tuple[object, ...], OpTiming] = {}

    def run(self) -> None:
        """Run to the end. Raises UserError if the program is stuck."""
        self.launcher.start()
        cycle = last_issue = 0
        while self.resident or len(self.events):
            issued = self.issued
            self.events.run(cycle)
            for sm in self.sms.values():
                sm.cycle(cycle)
            self.launcher.end_of_cycle(cycle)
            if self.issued != issued or len(self.events):
                last_issue = cycle
            if cycle - last_issue > QUIET_LIMIT_CYCLES:
                raise UserError(
                    stuck_report(self.resident, last_issue), hint="a barrier, phase or group that nobody completes"
                )
            cycle += 1
        if never := unfinished(self.launcher.draining):
            raise UserError(never, hint="each of the four wefts of a group issues its group instructions in one order")

    @property
    def resident(self) -> list[Warp]:
        """All resident warps."""
        return [warp for sm in self.sms.values() for part in sm.subpartitions for warp in part.warps]

    def timing(self, instruction: Instruction) -> OpTiming:
        """Return pipe, initiation interval and latency of an instruction."""
        key = (instruction.op, instruction.form, instruction.dtype, instruction.shape)
        if key not in self._timings:
            self._timings[key] = self.machine.op_timing(
                instruction.op, form=instruction.form, dtype=instruction.dtype, shape=instruction.shape
            )
        return self._timings[key]

    def account(self, warp: Warp, state: Stall) -> None:
        """Charge one cycle of a warp to a state."""
        key = (warp.cta.sm.number, warp.context)
        self.stalls.setdefault(key, np.zeros(len(Stall), dtype=np.int64))[state] += 1
        self.stalls_pc[warp.pc, state] += 1
        self.issued += state is Stall.SELECTED

    def note_end(self, cycle: int) -> None:
        """Note that something that counts for the end of the kernel happens at `cycle`."""
        self.end = max(self.end, cycle)

    def load(
        self,
        warp: Warp,
        instruction: Instruction,
        cycle: int,
        *,
        leaves: int,
        extra_latency: int,
        sms: Sequence[Sm] = (),
    ) -> list[int]:
        """Send a load that reaches L2 at `leaves`; return when each SM (default: the warp's) has the data."""
        request = self._request(warp, instruction, cycle, leaves, extra_latency)
        return self.memory.load(request, [sm.number for sm in sms or [warp.cta.sm]])

    def store(self, warp: Warp, instruction: Instruction, cycle: int, *, leaves: int) -> tuple[int, int]:
        """Send a store or reduction; return when it is visible and until when memory does not take its data."""
        request = self._request(warp, instruction, cycle, leaves, 0)
        reduce = instruction.op in ("RED", "UTMAREDG")
        return self.memory.store(request, warp.cta.sm.number, reduce=reduce)

    def _request(self, warp: Warp, instruction: Instruction, cycle: int, leaves: int, extra: int) -> Request:
        assert instruction.stream is not None
        ref, stream = instruction.stream, self._streams[instruction.stream.name]
        return Request(
            self._spaces[ref.name],
            self._block(warp, stream, ref),
            self._part(warp, stream, ref),
            ref.parts,
            instruction.bytes,
            cycle,
            leaves,
            extra,
        )

    def _block(self, warp: Warp, stream: Stream, ref: StreamRef) -> int:
        counter = warp.loops[stream.level] + ref.offset
        return warp.attribute(stream.base) + counter * stream.step + warp.cta.rank * stream.cta_step

    def _part(self, warp: Warp, stream: Stream, ref: StreamRef) -> int:
        part = ref.part + (warp.rank * ref.rank_stride if ref.part_by_rank else 0)
        return part + (warp.cta.rank * (ref.parts // stream.multicast) if stream.multicast > 1 else 0)
