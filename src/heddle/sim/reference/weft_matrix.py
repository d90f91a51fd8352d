"""Matrix instructions of one weft, or of four neighbours together: WMMA and WMMA.TM (fiber.md, section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from heddle.errors import UnsupportedError
from heddle.ir.warp import Instruction
from heddle.sim.reference.matrix_unit import element_bytes, rate_scale
from heddle.sim.reference.registers import MATRIX_OPERANDS, Physical, accumulators, registers
from heddle.sim.reference.ticks import TICKS_PER_CYCLE, duration, floor_cycles, ticks
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.reference.weft_queue import GROUP_WEFTS, Entry, MatrixQueues
from heddle.sim.result import EventKind, Stall

if TYPE_CHECKING:
    from heddle.sim.reference.sm import Sm

LEFT_OF_PORTS = 16  # accumulators leave at least one read of so many, so that a SIMD read ends (fiber.md, section 6)
STEP_COLUMNS = 8  # columns of the steps in which operands are read ahead


class Accumulators(NamedTuple):
    """Reads that accumulators take of a subpartition's ports while an instruction runs, and what the ports give then.

    Both are in 1/256 of a read.
    """

    reads: int
    capacity: int


class WeftMatrixUnits:
    """One matrix unit in each subpartition: when it is free, and which accumulators it reads."""

    def __init__(self, sm: Sm) -> None:
        machine = sm.machine
        self.queues = MatrixQueues(machine.subpartitions, machine.matrix_queue_depth)
        self.free = [0] * machine.subpartitions  # ticks
        self.busy = 0  # ticks, over all subpartitions
        self._owners: list[tuple[int, int] | None] = [None] * machine.subpartitions  # slot, weft
        self._spans: list[list[tuple[int, int, Accumulators]]] = [[] for _ in range(machine.subpartitions)]

    def occupy(self, place: int, start: int, length: int, accumulators: Accumulators) -> None:
        """Run an instruction that reads accumulators from the subpartition's ports."""
        self.free[place] = start + length
        self.busy += length
        if accumulators.reads:
            self._spans[place].append((floor_cycles(start), floor_cycles(start + length), accumulators))

    def change_owners(self, entries: list[Entry]) -> bool:
        """Tell whether one of the units has worked for another weft before, and note whom they work for now."""
        before = [self._owners[entry.place] for entry in entries]
        after = [(entry.warp.cta.slot, entry.warp.index) for entry in entries]
        for entry, owner in zip(entries, after, strict=True):
            self._owners[entry.place] = owner
        return any(old not in (None, new) for old, new in zip(before, after, strict=True))

    def slowed_reads(self, place: int, cycles: int, cycle: int) -> int:
        """Return the ticks of so many cycles of reads at `cycle`."""
        running = [accumulators for start, end, accumulators in self._spans[place] if start <= cycle < end]
        length = cycles * TICKS_PER_CYCLE
        return length * running[0].capacity // (running[0].capacity - running[0].reads) if running else length


class WeftMma(UnitModel):
    """WEFT_MMA: issued into the queue of its subpartition; read, computed and written back later."""

    def reason(self, instruction: Instruction) -> Stall:
        return Stall.MATRIX_SCOREBOARD

    def full(self, warp: Warp, instruction: Instruction, cycle: int) -> Stall | None:
        return Stall.GMMA if self.sm.weft_matrix.queues.full(warp.subpartition, cycle) else None

    def issue(self, warp: Warp, instruction: Instruction, cycle: int, extra: int) -> None:
        stage = self.sm.chip.log.stage(warp, instruction)
        entry = Entry(warp, instruction, warp.pc, cycle, stage, warp.operation)
        for counter in (instruction.control.write_barrier, instruction.control.read_barrier):
            warp.begin(counter, self.reason(instruction))
        if instruction.group:
            warp.cta.weft_group(warp, warp.groups_issued).join(entry)
            warp.groups_issued += 1
        queues = self.sm.weft_matrix.queues
        queues.add(entry)
        while (entries := queues.next()) is not None:
            self._decide(entries)

    def _decide(self, entries: list[Entry]) -> None:
        """Give an instruction, or a group, its start, and tell when its operands are read and its result is there."""
        units, shared, first = self.sm.weft_matrix, self.sm.shared, entries[0].instruction
        reads = self._reads(entries)
        start = max(
            *(max((entry.issued + 1) * TICKS_PER_CYCLE, units.free[entry.place]) for entry in entries),
            shared.backlog - self.machine.shared_async_slack_cycles * TICKS_PER_CYCLE,
            self._ports_free(reads) - self.machine.operand_prefetch_steps * self._length(first, STEP_COLUMNS),
        )
        if units.change_owners(entries):
            start += self.machine.wgmma_switch_cycles * TICKS_PER_CYCLE
        shared_bytes = self._shared_bytes(first, len(entries))
        shared_length = shared.length(shared_bytes)
        length = max(self._length(first), shared_length, self._read_length(entries, reads))
        shared.join(start, shared_length)
        shared.bytes += shared_bytes
        self._charge(entries, reads, start)
        for entry in entries:
            units.occupy(entry.place, start, length, self._port_use(entry, length))
            entry.start = start
            self._finish(entry, start, length)

    def _reads(self, entries: list[Entry]) -> dict[tuple[int, int], set[Physical]]:
        """Return for each port (subpartition, bank) the operand registers that it gives, each once."""
        reads: dict[tuple[int, int], set[Physical]] = {}
        for entry in entries:
            for slot in entry.instruction.src[:MATRIX_OPERANDS]:
                for register in registers(entry.warp, slot):
                    if not register.tensor:
                        bank = self.sm.ports[register.subpartition].bank(register)
                        reads.setdefault((register.subpartition, bank), set()).add(register)
        return reads

    def _ports_free(self, reads: dict[tuple[int, int], set[Physical]]) -> int:
        return max((self.sm.ports[part].free(bank) for part, bank in reads), default=0)

    def _charge(self, entries: list[Entry], reads: dict[tuple[int, int], set[Physical]], start: int) -> None:
        """Charge the ports when the instruction starts, and count what crosses and what is shared."""

        def fetch(now: int) -> None:
            for part, bank in sorted(reads):
                self.sm.ports[part].fetch(bank, start, len(reads[part, bank]))

        self.sm.chip.events.at(floor_cycles(start), fetch)
        asked = 0
        for entry in entries:
            slots = entry.instruction.src[:MATRIX_OPERANDS]
            named = {r for slot in slots for r in registers(entry.warp, slot) if not r.tensor}
            asked += len(named)
            self.sm.arbiter.crossed += sum(register.subpartition != entry.place for register in named)
        self.sm.arbiter.shared += asked - sum(len(registers_) for registers_ in reads.values())

    def _length(self, instruction: Instruction, columns: int | None = None) -> int:
        """Return the ticks of the products (of the first `columns` columns)."""
        m, n, k = instruction.shape or (0, 0, 0)
        rate = self.machine.tensor_flops_per_cycle / self.machine.subpartitions
        scale = rate_scale(self.machine, instruction.dtype)
        return duration(2 * m * (n if columns is None else columns) * k, rate * scale)

    def _read_length(self, entries: list[Entry], reads: dict[tuple[int, int], set[Physical]]) -> int:
        """Return the ticks in which the busiest port gives operands and accumulators."""
        ports = {port: len(registers_) for port, registers_ in reads.items()}
        for entry in entries:
            for register in self._accumulators(entry):
                port = entry.place, self.sm.ports[entry.place].bank(register)
                ports[port] = ports.get(port, 0) + 1
        return max((ticks(self.sm.ports[part].cycles(ports[part, bank])) for part, bank in ports), default=0)

    def _accumulators(self, entry: Entry) -> list[Physical]:
        """Return the accumulators that vector registers hold."""
        return [register for register in accumulators(entry.warp, entry.instruction) if not register.tensor]

    def _port_use(self, entry: Entry, length: int) -> Accumulators:
        """Return what the accumulators take of the ports while the instruction runs for `length` ticks."""
        capacity = length * self.machine.register_banks * self.machine.register_reads_per_bank_per_cycle
        if entry.instruction.op == "WMMA.TM":
            return Accumulators(0, capacity)
        share = round(self.machine.tensor_port_share * TICKS_PER_CYCLE)
        wanted = max(len(self._accumulators(entry)) * TICKS_PER_CYCLE, capacity * share // TICKS_PER_CYCLE)
        return Accumulators(min(wanted, capacity - capacity // LEFT_OF_PORTS), capacity)

    def _shared_bytes(self, instruction: Instruction, members: int) -> int:
        """Return the bytes of operands in shared memory: A of each member, B once."""
        m, n, k = instruction.shape or (0, 0, 0)
        a = members * m * k if instruction.form[0] == "s" else 0
        b = n * k if instruction.form[1] == "s" else 0
        return (a + b) * element_bytes(instruction.dtype)

    def _finish(self, entry: Entry, start: int, length: int) -> None:
        read = start + length
        complete = read + self._tail(entry.instruction) * TICKS_PER_CYCLE
        if entry.instruction.op == "WMMA.TM":
            complete = start + self._length(entry.instruction) + self._latency(entry.instruction) * TICKS_PER_CYCLE
        read_cycle, complete_cycle = floor_cycles(read), floor_cycles(complete)
        log, warp, control = self.sm.chip.log, entry.warp, entry.instruction.control
        log.span(EventKind.TENSOR, warp, floor_cycles(start), read_cycle, pc=entry.pc, stage=entry.stage)
        log.span(EventKind.COMPLETE, warp, complete_cycle, complete_cycle, pc=entry.pc)
        warp.finish(control.write_barrier, complete_cycle)
        warp.finish(control.read_barrier, read_cycle)
        if entry.operation is not None:
            entry.operation.reads_end(read_cycle)
            entry.operation.writes_end(complete_cycle)

    def _tail(self, instruction: Instruction) -> int:
        """Return the cycles from the last operand to the last accumulator."""
        if self.machine.wgmma_tail_cycles:
            return self.machine.wgmma_tail_cycles
        timing = self.machine.op_timing("HMMA", dtype=instruction.dtype)
        return max(0, timing.latency_cycles - floor_cycles(ticks(timing.initiation_cycles)))

    def _latency(self, instruction: Instruction) -> int:
        key = f"{'ss' if instruction.form[0] == 's' else 'ts'}_m128_1cta"
        if key not in self.machine.tcgen05_latency_cycles:
            raise UnsupportedError(f"{self.machine.name} has no tensor memory: no latency {key!r} for WMMA.TM")
        return self.machine.tcgen05_latency_cycles[key]


__all__ = ["GROUP_WEFTS", "WeftMatrixUnits", "WeftMma"]
