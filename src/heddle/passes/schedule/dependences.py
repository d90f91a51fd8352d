"""What must stay in order inside a block, and how many cycles apart it should issue.

- registers: a read stays behind the write that it needs (by the latency of the result), a write behind the reads and
  writes before it;
- instructions of memory, of asynchronous units, of tensor cores, and those that step a ring keep their order among
  themselves, whatever they touch; so do accesses to pool tensors (mode fiber), where a weft may wait for another;
- WARPGROUP.ARRIVE and the wait for wgmma count as touching the registers that they hand over and give back;
- effects: see `effects`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Effect
from heddle.machine.spec import Machine, OpTiming
from heddle.passes.draft import Draft, Operand
from heddle.passes.schedule.effects import effect_order
from heddle.passes.schedule.matrix_groups import Elements
from heddle.passes.schedule.pipes import copy_cycles, occupancy
from heddle.passes.timing import LATE_READERS

FREE_UNITS = frozenset({Unit.FIXED, Unit.VARIABLE})  # these work on registers alone
ORDERED_OPS = frozenset({"HMMA", "FENCE", "FENCE.TM"})  # of the free units, but in the order of memory instructions
CHANNELS = frozenset({"pool", "tensor"})  # files whose accesses may wait for other wefts
Edges = dict[int, int]
READ_CYCLES = 2  # from the start in such a unit to the release of its operands (docs/reference/engine.md, section 4)
TOUCH_CYCLES = 1  # from an instruction that only orders registers to the next


@dataclass(frozen=True, slots=True)
class Graph:
    """`after[i]`: {j: cycles}, j must issue that many cycles (0: later in order) after i; `before` is the reverse.

    `waits`: the waits for wgmma, whose end nobody knows. `beyond[i]`: cycles from the issue of an instruction that
    starts a copy to the copy's end, which somebody waits for behind the block.
    """

    timings: tuple[OpTiming, ...]
    after: tuple[Edges, ...]
    before: tuple[Edges, ...]
    waits: frozenset[int]
    beyond: tuple[int, ...]


@dataclass(slots=True)
class _Builder:
    timings: list[OpTiming]
    held: list[int]  # cycles from each instruction's issue to the reading of its operands, where that is late
    after: list[Edges]
    before: list[Edges]
    writers: dict[tuple[int, int], int] = field(default_factory=dict)
    readers: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    orders_only: set[int] = field(default_factory=set)

    def edge(self, first: int, second: int, cycles: int) -> None:
        """`second` issues at least `cycles` after `first`."""
        if first != second:
            cycles = max(cycles, self.after[first].get(second, 0))
            self.after[first][second] = self.before[second][first] = cycles

    def read(self, index: int, elements: Iterable[tuple[int, int]]) -> None:
        """Results are there a latency after their producer's issue."""
        for element in elements:
            writer = self.writers.get(element)
            if writer is not None:
                self.edge(writer, index, self._latency(writer))
            self.readers[element].append(index)

    def write(self, index: int, elements: Iterable[tuple[int, int]]) -> None:
        """Later than the reads before, and landing later than the write before."""
        for element in elements:
            for reader in self.readers.pop(element, ()):
                self.edge(reader, index, self.held[reader])
            writer = self.writers.get(element)
            if writer is not None:
                self.edge(writer, index, max(1, self._latency(writer) - self._latency(index) + 1))
            self.writers[element] = index

    def _latency(self, index: int) -> int:
        return TOUCH_CYCLES if index in self.orders_only else max(1, self.timings[index].latency_cycles)


def dependences(
    block: Sequence[Draft],
    effects: Sequence[Effect],
    settled: Mapping[int, Elements],
    warps: int,
    machine: Machine,
    spread: float = 1.0,
) -> Graph:
    """The dependence graph of a block of a role of `warps`; `settled`: see `matrix_groups`, by index in the block.

    `spread`: how many times longer arithmetic takes its pipe than it does alone, so that it is not crowded.
    """
    timings = [occupancy(draft.row, warps, machine, spread) for draft in block]
    held = [_held_cycles(draft, timing) for draft, timing in zip(block, timings, strict=True)]
    builder = _Builder(timings, held, [{} for _ in block], [{} for _ in block])
    last_ordered: int | None = None
    for index, draft in enumerate(block):
        touched = _elements(draft.after) | settled.get(index, frozenset())
        builder.read(index, _elements(draft.reads()) | touched)
        if touched:
            builder.orders_only.add(index)
        builder.write(index, _elements(draft.dst) | touched)
        if is_ordered(draft):
            if last_ordered is not None:
                builder.edge(last_ordered, index, 1)
            last_ordered = index
    for first, second in effect_order(block, effects):
        builder.edge(first, second, 0)
    waits = frozenset(i for i, draft in enumerate(block) if OPCODES[draft.op].unit is Unit.WGMMA_WAIT)
    beyond = tuple(copy_cycles(draft.row, machine) for draft in block)
    return Graph(tuple(timings), tuple(builder.after), tuple(builder.before), waits, beyond)


def _held_cycles(draft: Draft, timing: OpTiming) -> int:
    """An asynchronous unit reads registers when it takes up the instruction, at the latest after those before it."""
    late = OPCODES[draft.op].unit in LATE_READERS
    return ceil(timing.initiation_cycles) + READ_CYCLES if late else 0


def is_ordered(draft: Draft) -> bool:
    """Whether an instruction keeps its place among those of memory and asynchronous units."""
    unit = OPCODES[draft.op].unit
    shared = any(operand.value.file in CHANNELS for operand in (*draft.dst, *draft.src))
    return shared or unit not in FREE_UNITS or draft.op in ORDERED_OPS or bool(draft.row.advance)


def _elements(operands: Iterable[Operand]) -> Elements:
    return frozenset(element for operand in operands for element in operand.elements())
