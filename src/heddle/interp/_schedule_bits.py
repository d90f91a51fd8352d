"""Full and empty bits and weft-level matrix instructions in an untimed run (docs/reference/fiber.md, sections 3 and 6).

Operations other than matrix instructions read and write in the step in which they issue. Matrix instructions of a
subpartition run one by one, those of a lockstep group together, each for a random while: they give back and write late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from heddle.interp._schedule_clock import Clock
from heddle.interp._schedule_state import RunningWarp
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Instruction, Register, WarpProgram
from heddle.ir.warp_fiber import SUBPARTITIONS, TENSOR, Bind
from heddle.sim.result import EventKind

Key = tuple[int, int, bool, int]
"""Id of the CTA, subpartition, whether in tensor memory, number."""
_ANYONE = -1
_ALL = frozenset(range(SUBPARTITIONS))
_NO_BIND = Bind()


@dataclass(slots=True, eq=False)
class _Product:
    """A matrix instruction in the queue of its subpartition."""

    warp: RunningWarp
    pc: int
    group: bool
    consumed: list[tuple[Key, bool]]
    written: list[Key]
    finish: Callable[[], None]


@dataclass(slots=True)
class Bits:
    """Who may issue in a program of mode fiber; nothing happens in others, or without bits."""

    program: WarpProgram
    clock: Clock
    pool: range = field(init=False)
    active: bool = field(init=False)
    empty: dict[Key, frozenset[int]] = field(default_factory=dict)
    full: dict[Key, set[int]] = field(default_factory=dict)
    bound: dict[int, Bind] = field(default_factory=dict)
    writing: dict[Key, list[_Product]] = field(default_factory=dict)
    queues: dict[tuple[int, int], deque[_Product]] = field(default_factory=dict)
    running: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        note = self.program.fiber
        self.active = note is not None and any(row.bind for row in self.program.instructions)
        self.pool = range(note.pool_first, note.pool_limit) if note is not None else range(0)

    def may_issue(self, warp: RunningWarp, instruction: Instruction) -> bool:
        """Tell whether no source is empty and the destination is not full."""
        if not self.active:
            return True
        for register, accumulator in _sources(instruction):
            for key in self._keys(warp, register):
                own = accumulator and any(product.warp is warp for product in self.writing.get(key, ()))
                if not own and warp.index % SUBPARTITIONS in self.empty.get(key, _ALL):
                    return False
        return not any(self.full.get(key) for key in self._keys(warp, instruction.dst))

    def issue(self, warp: RunningWarp, pc: int, finish: Callable[[], Callable[[], None]]) -> None:
        """An instruction has issued; `finish()` counts a late one and returns what ends it."""
        if not self.active:
            return
        instruction = self.program.instructions[pc]
        if instruction.bind is not None:
            self.bound[id(warp)] = instruction.bind
            return
        bind, home = self.bound.pop(id(warp), _NO_BIND), warp.index % SUBPARTITIONS
        consumed = [(k, s in bind.scoped) for s in bind.consume for k in self._keys(warp, instruction.src[s])]
        written = list(self._keys(warp, instruction.dst))
        for key, scoped in consumed:
            self.empty[key] = self.empty.get(key, _ALL) | ({home} if scoped else _ALL)
        for key in written:
            self.empty[key] = _ALL
            if bind.hold:
                self.full[key] = set(bind.readers or (_ANYONE,))
        if OPCODES[instruction.op].unit is not Unit.WEFT_MMA:
            self._give_back(home, consumed)
            self.empty.update(dict.fromkeys(written, frozenset[int]()))
            return
        product = _Product(warp, pc, instruction.group, consumed, written, finish())
        for key in written:
            self.writing.setdefault(key, []).append(product)
        self.queues.setdefault((id(warp.cta), home), deque()).append(product)
        self._start(id(warp.cta))

    def _start(self, cta: int) -> None:
        """Start what stands first in its queue and, of a lockstep group, whose partners do so, too."""
        places = [(cta, home) for home in range(SUBPARTITIONS)]
        heads = {at: self.queues[at][0] for at in places if self.queues.get(at) and at not in self.running}
        for at, product in heads.items():
            if not product.group:
                self._run([at], [product])
                return
            team = product.warp.index // SUBPARTITIONS
            partners = [p for p in heads.values() if p.group and p.warp.index // SUBPARTITIONS == team]
            if len(partners) == SUBPARTITIONS:
                self._run(places, partners)
                return

    def _run(self, places: list[tuple[int, int]], products: list[_Product]) -> None:
        begin, longest = self.clock.now + 1, self.clock.longest_delay // 4
        read = begin + self.clock.random.randint(1, longest + 1)
        done = read + self.clock.random.randint(0, longest)
        self.running |= set(places)

        def end_reading() -> None:
            for at, product in zip(places, products, strict=True):
                self.queues[at].popleft()
                self._give_back(at[1], product.consumed)
            self.running.difference_update(places)
            for _ in places:
                self._start(places[0][0])

        self.clock.at(read, end_reading)
        for product in products:
            self.clock.record(EventKind.TENSOR, product.warp, product.pc, begin, read)
            self.clock.record(EventKind.COMPLETE, product.warp, product.pc, done, done)
            self.clock.at(done, lambda product=product: self._written(product))  # type: ignore[misc]

    def _written(self, product: _Product) -> None:
        product.finish()
        for key in product.written:
            self.writing[key].remove(product)
            if not self.writing[key]:
                self.empty[key] = frozenset()

    def _give_back(self, home: int, consumed: list[tuple[Key, bool]]) -> None:
        for key, scoped in consumed:
            self.full.setdefault(key, set()).discard(home if scoped else _ANYONE)

    def _keys(self, warp: RunningWarp, register: Register | None) -> Iterator[Key]:
        """Pool registers and columns of tensor memory of an operand."""
        if register is None or (register.place is None and register.index == RZ):
            return
        own = register.place is None or register.place < 0
        where = warp.index % SUBPARTITIONS if own else int(register.place or 0)
        memory = register.place == TENSOR
        first = register.index + (warp.role.base if register.place is None else 0)
        for number in range(first, first + register.count):
            if memory or number in self.pool:
                yield id(warp.cta), where, memory, number


def _sources(instruction: Instruction) -> Iterator[tuple[Register | None, bool]]:
    """Registers that are read, and whether as an accumulator."""
    matrix = OPCODES[instruction.op].unit is Unit.WEFT_MMA or instruction.op == "HMMA"
    for slot, register in enumerate(instruction.src):
        yield register, matrix and slot == 2
    if matrix and len(instruction.src) < 3:
        yield instruction.dst, True
