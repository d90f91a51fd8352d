"""One schedule of the wefts of a FIBER-thread, played with full and empty bits and without time.

Channels are a Kahn network with places of capacity one: with one producer and one consumer a register, values, a
deadlock and the final state are the same for every schedule (docs/decisions/0006). So each weft runs as far as it
can, in turn, and an operation completes when it issues. Copies land at once: how far memory is behind changes nothing.
Played is the first cluster, as one CTA, with its first and its last items: a kernel may begin an item before the one
before it ends, which the last one does not. Named barriers, semaphores and groups pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import LOOP_LEVELS, RZ, BarrierRef, Count, Instruction, Register, Role, WarpProgram
from heddle.ir.warp_fiber import SUBPARTITIONS, TENSOR, TENSOR_COLUMNS, Bind
from heddle.passes.channel_order import TENSOR_FIRST, Order, tile_registers

ITEMS = 3  # work items of the cluster that are played
ALL = frozenset(range(SUBPARTITIONS))
ANYONE = -1  # the part of a full bit that whoever consumes clears
STEERING = {Unit.BIND, Unit.LOOP, Unit.SKIP, Unit.NEXT_ITEM, Unit.EXIT}
ACTS_EVERY = {"warp": 1, "group": SUBPARTITIONS}  # of how many wefts one acts; of a role the first alone
Place = tuple[int, int]
"""Subpartition and register, or `TENSOR_FIRST` + group of columns of tensor memory."""


def name_of(place: Place) -> str:
    """What people call a place."""
    if place[1] < TENSOR_FIRST:
        return f"register {place[1]} of subpartition {place[0]}"
    first = (place[1] - TENSOR_FIRST) * TENSOR_COLUMNS
    return f"columns {first} to {first + TENSOR_COLUMNS - 1} of tensor memory of subpartition {place[0]}"


@dataclass(slots=True)
class Bits:
    """State of one pool register: bits, and the pcs of the last write and read.

    `empty`: the subpartitions that see it empty; `full`: the reading subpartitions that have not given it back.
    """

    empty: set[int] = field(default_factory=lambda: set(ALL))
    full: set[int] = field(default_factory=set)
    written_pc: int = -1
    read_pc: int = -1


@dataclass(slots=True)
class Phase:
    """One mbarrier."""

    arrived: int = 0
    expected: int = 0
    parity: int = 0


class Operands(NamedTuple):
    """Places with bits that an instruction touches: by source slot, all that it reads (an accumulator, too), writes."""

    slots: tuple[tuple[Place, ...], ...]
    read: tuple[Place, ...]
    written: tuple[Place, ...]


@dataclass(slots=True)
class Weft:
    """Where a weft is: next instruction, item, loop counters, rings, and what is bound to its next instruction."""

    number: int
    role: Role
    pc: int
    item: int = 0
    counters: list[int] = field(default_factory=lambda: [0] * LOOP_LEVELS)
    rings: dict[str, tuple[int, int]] = field(default_factory=dict)
    bound: Bind | None = None
    ended: bool = False
    waits: str = ""

    @property
    def home(self) -> int:
        """The weft's subpartition."""
        return self.number % SUBPARTITIONS

    def place(self, register: Register) -> list[Place]:
        """The registers of a group, for this weft."""
        if register.place is None and register.index == RZ:
            return []
        own = register.place is None or register.place < 0
        where = self.home if own else int(register.place or 0)
        if register.place == TENSOR:
            return [(where, TENSOR_FIRST + number) for number in range(register.index, register.index + register.count)]
        first = register.index + (self.role.base if register.place is None else 0)
        return [(where, number) for number in range(first, first + register.count)]


class Game:
    """Plays a program.

    `writers`, `consumers`: for each pool register the wefts that write and that read it, with a pc each; `shared`: the
    registers held for several subpartitions; `misread`: data given back by a subpartition for which they are not held;
    `order`: what each weft knows of the others; `cut`: not all items of the cluster are played.
    """

    def __init__(self, program: WarpProgram, *, every_item: bool = False) -> None:
        self.program = program
        self.wefts = [
            Weft(number, role, role.entry)
            for role in program.roles
            for number in range(role.first_warp, role.first_warp + role.warps)
        ]
        assert program.fiber is not None
        self.pool = range(program.fiber.pool_first, program.fiber.pool_limit)
        self.bits: dict[Place, Bits] = {}
        self._touched: dict[tuple[int, int], Operands] = {}
        self._behind: dict[tuple[int, int], int] = {}
        self.phases: dict[tuple[str, int], Phase] = {}
        self.arrivals = {barrier.name: barrier.arrivals for barrier in program.barriers}
        self.depths = {ring.name: ring.depth for ring in program.rings}
        self.writers: dict[Place, dict[int, int]] = {}
        self.consumers: dict[Place, dict[int, int]] = {}
        self.shared: set[Place] = set()
        self.misread: list[tuple[int, Place]] = []
        self.order = Order(len(self.wefts), tile_registers(program))
        grid = program.work.grid if program.work.schedule == "static" else 1
        last = len(program.work.items) if program.work.schedule != "launch" else 1
        items = list(range(0, last, max(1, grid)))
        self.cut = not every_item and len(items) > ITEMS
        self.items = [items[0], *items[1 - ITEMS :]] if self.cut else items

    def play(self) -> bool:
        """Run every weft as far as it goes, until all have ended; returns whether they have."""
        moved = True
        while moved:
            moved = False
            for weft in self.wefts:
                while not weft.ended and self._step(weft):
                    moved = True
        return all(weft.ended for weft in self.wefts)

    @property
    def question(self) -> tuple[bool, tuple[tuple[int, ...], ...]]:
        """Whether items are left out, and what decides the way of wefts through those that are played."""
        rows = self.program.instructions
        names = {row.count.attribute for row in rows if row.count} | {row.attribute for row in rows}
        work = self.program.work
        columns = sorted(work.attributes.index(name) for name in names if name)
        return self.cut, tuple(tuple(map(int, work.items[item, columns])) for item in self.items)

    @property
    def at_rest(self) -> bool:
        """Whether nothing is left that has not been given back."""
        return not any(bits.full for bits in self.bits.values())

    def pool_places(self, weft: Weft, registers: tuple[Register | None, ...]) -> list[Place]:
        """The pool registers, and groups of columns of tensor memory, among some operands."""
        return [p for r in registers if r is not None for p in weft.place(r) if self.has_bits(p)]

    def has_bits(self, place: Place) -> bool:
        """Whether full and empty bits of a place order its accesses."""
        return place[1] in self.pool or place[1] >= TENSOR_FIRST

    def _operands(self, weft: Weft, pc: int) -> Operands:
        """What an instruction touches that has bits; the same for all wefts of a role in one subpartition."""
        key = (pc, weft.home)
        if key not in self._touched:
            instruction = self.program.instructions[pc]
            slots = tuple(tuple(self.pool_places(weft, (source,))) for source in instruction.src)
            read = self.pool_places(weft, _sources(instruction))
            self._touched[key] = Operands(slots, tuple(read), tuple(self.pool_places(weft, (instruction.dst,))))
        return self._touched[key]

    def _is_idle(self, weft: Weft, pc: int) -> bool:
        """Whether an instruction waits for nothing and changes nothing here."""
        instruction = self.program.instructions[pc]
        if instruction.barrier is not None or instruction.advance or OPCODES[instruction.op].unit in STEERING:
            return False
        operands = self._operands(weft, pc)
        return not operands.read and not operands.written

    def _pass_idle(self, weft: Weft) -> None:
        """Let a weft issue what is idle from its next instruction on."""
        key = (weft.pc, weft.home)
        if key not in self._behind:
            end = weft.pc
            while self._is_idle(weft, end):
                end += 1
            self._behind.update({(pc, weft.home): end for pc in range(weft.pc, end + 1)})
        if self._behind[key] != weft.pc:
            weft.pc, weft.bound = self._behind[key], None

    # one instruction

    def _step(self, weft: Weft) -> bool:
        """Try to issue the weft's next instruction that is not idle."""
        self._pass_idle(weft)
        instruction = self.program.instructions[weft.pc]
        unit = OPCODES[instruction.op].unit
        if not self._may_issue(weft, instruction, unit):
            return False
        if unit is Unit.BIND:
            weft.bound = instruction.bind
        else:
            self._learn(weft, instruction, unit)
            self._touch(weft, instruction)
            weft.bound = None
            if (weft.number - weft.role.first_warp) % ACTS_EVERY.get(instruction.by, weft.role.warps) == 0:
                self._signal(weft, instruction, unit)
        for ring in instruction.advance:
            stage, phase = weft.rings.get(ring, (0, 0))
            weft.rings[ring] = (stage + 1, phase) if stage + 1 < self.depths[ring] else (0, phase ^ 1)
        weft.pc = self._next(weft, instruction, unit)
        return True

    def _may_issue(self, weft: Weft, instruction: Instruction, unit: Unit) -> bool:
        if unit is Unit.MBARRIER_WAIT and instruction.barrier is not None:
            phase = weft.rings.get(instruction.barrier.ring or "", (0, 0))[1]
            weft.waits = f"mbarrier {instruction.barrier.name}"
            return self._phase(weft, instruction.barrier).parity != phase ^ instruction.barrier.flip
        operands = self._operands(weft, weft.pc)
        for place in operands.read:
            if weft.home in self._bits(place).empty:
                weft.waits = f"{name_of(place)}, which is empty"
                return False
        for place in operands.written:
            if self._bits(place).full:
                weft.waits = f"{name_of(place)}, which is full"
                return False
        return True

    def _learn(self, weft: Weft, instruction: Instruction, unit: Unit) -> None:
        """What the weft waited for tells it what others have done."""
        if unit is Unit.MBARRIER_WAIT and instruction.barrier is not None:
            self.order.passed(weft.number, self._key(weft, instruction.barrier))
        operands = self._operands(weft, weft.pc)
        for place in operands.read:
            self.order.waited(weft.number, place, read=True)
        for place in operands.written:
            self.order.waited(weft.number, place, read=False)

    def _touch(self, weft: Weft, instruction: Instruction) -> None:
        operands = self._operands(weft, weft.pc)
        if not operands.read and not operands.written:
            return
        bind = weft.bound or Bind()
        event = self.order.issue(weft.number, weft.pc)
        if instruction.group:
            self.order.group(event)
        for slot, places in enumerate(operands.slots):
            for place in places:
                bits = self._bits(place)
                bits.read_pc = weft.pc
                self.order.read(event, place, gives_back=slot in bind.consume)
                if place[1] < TENSOR_FIRST:
                    self.consumers.setdefault(place, {}).setdefault(weft.number, weft.pc)
                if slot in bind.consume:
                    self._give_back(weft, place, slot in bind.scoped)
        for place in operands.written:
            bits = self._bits(place)
            bits.empty, bits.written_pc = set(), weft.pc
            self.order.write(event, place)
            bits.full = set(bind.readers or (ANYONE,)) if bind.hold else set()
            if bind.readers:
                self.shared.add(place)
            if place[1] < TENSOR_FIRST:  # columns have several writers, which tokens order
                self.writers.setdefault(place, {}).setdefault(weft.number, weft.pc)

    def _give_back(self, weft: Weft, place: Place, scoped: bool) -> None:
        bits, reader = self._bits(place), weft.home if scoped else ANYONE
        if reader not in bits.full:
            self.misread.append((weft.pc, place))
        bits.full.discard(reader)
        bits.empty |= {reader} if scoped else ALL

    def _signal(self, weft: Weft, instruction: Instruction, unit: Unit) -> None:
        if instruction.barrier is None:
            return
        phase = self._phase(weft, instruction.barrier)
        if unit in (Unit.MBARRIER_EXPECT, Unit.MBARRIER_ARRIVE):
            phase.arrived += self._senders(instruction.barrier)
            self.order.arrive(weft.number, self._key(weft, instruction.barrier))
            phase.expected += instruction.bytes if unit is Unit.MBARRIER_EXPECT else 0
        elif unit is Unit.BULK_LOAD:
            phase.expected -= instruction.bytes * instruction.ctas  # the other CTAs bring as much
        if phase.arrived >= self.arrivals[instruction.barrier.name] and phase.expected == 0:
            phase.arrived, phase.parity = 0, phase.parity ^ 1

    def _senders(self, use: BarrierRef) -> int:
        """Arrivals that a barrier gets where all CTAs of the cluster do the same."""
        return 1 if use.cta == "own" else self.program.cluster_size

    def _next(self, weft: Weft, instruction: Instruction, unit: Unit) -> int:
        taken = False
        if unit is Unit.EXIT:
            weft.ended = True
        elif unit is Unit.LOOP and instruction.count is not None:
            weft.counters[instruction.level] += 1
            taken = weft.counters[instruction.level] < self._count(weft, instruction.count)
            if not taken:
                weft.counters[instruction.level] = 0
        elif unit is Unit.SKIP and instruction.attribute is not None:
            taken = self._attribute(weft, instruction.attribute) == 0
        elif unit is Unit.NEXT_ITEM:
            taken = weft.item + 1 < len(self.items)
            weft.item += taken
        return instruction.target if taken and instruction.target is not None else weft.pc + 1

    def _bits(self, place: Place) -> Bits:
        bits = self.bits.get(place)
        if bits is None:
            bits = self.bits[place] = Bits()
        return bits

    def _phase(self, weft: Weft, use: BarrierRef) -> Phase:
        return self.phases.setdefault(self._key(weft, use), Phase())

    def _key(self, weft: Weft, use: BarrierRef) -> tuple[str, int]:
        """The mbarrier that a weft means."""
        stage = weft.rings.get(use.ring, (0, 0))[0] if use.ring else 0
        return use.name, (stage + use.offset) % self.depths[use.ring] if use.ring else use.offset

    def _attribute(self, weft: Weft, name: str) -> int:
        return int(self.program.work.items[self.items[weft.item], self.program.work.attributes.index(name)])

    def _count(self, weft: Weft, count: Count) -> int:
        base = count.value if count.attribute is None else self._attribute(weft, count.attribute)
        return base + count.offset


def _sources(instruction: Instruction) -> tuple[Register | None, ...]:
    """What is read: all slots and, of a matrix instruction without a third slot, the accumulator."""
    matrix = OPCODES[instruction.op].unit is Unit.WEFT_MMA or instruction.op == "HMMA"
    return (*instruction.src, instruction.dst if matrix and len(instruction.src) < 3 else None)
