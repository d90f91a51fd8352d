"""Reorder the instructions of each basic block so that the latencies and pipe intervals of one warp overlap.

A compiler does this between instruction selection and register allocation, and again after it. Here it is done once,
before allocation: registers are still values there, so that no accidental sharing of a register forbids an order;
the pressure that an order causes is counted while it is built, and the allocation of the result is tried at once.

Blocks end at labels, branches and whatever a warp may have to wait at for another one (`regions`). Inside a block
`dependences` says what must stay in order and how far apart it should be, `order` builds the new order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import floor

from heddle.errors import UserError
from heddle.ir.warp import RZ
from heddle.machine.spec import Machine
from heddle.passes.allocate_registers import PREDICATES, UNIFORM_REGISTERS, AllocateRegisters
from heddle.passes.draft import Draft, DraftProgram, File, RoleDraft
from heddle.passes.liveness import Liveness, liveness
from heddle.passes.schedule.dependences import Graph, dependences
from heddle.passes.schedule.marks import lifted, lowered
from heddle.passes.schedule.matrix_groups import Elements, settled_by
from heddle.passes.schedule.order import Options, distances, in_order, reorder
from heddle.passes.schedule.pressure import Pressure
from heddle.passes.schedule.regions import KEPT, regions

Limits = dict[File, int]
SHORTEST = 3  # instructions of a block worth looking at
SHARES = (1.0, 0.5, 0.0)  # of the registers between the source order's peak and the budget, tried one after another


@dataclass(frozen=True, slots=True)
class _Block:
    """A block; without a graph where there is nothing to gain."""

    code: tuple[Draft, ...]
    graph: Graph | None = None
    pressure: Pressure | None = None
    distance: tuple[int, ...] = ()
    cycles: int = 0  # in source order


@dataclass(frozen=True, slots=True)
class Schedule:
    """List scheduling of all blocks.

    `lookahead`: how many instructions an instruction may overtake; `early_waits`: a wait for wgmma may move up once
    what depends on it is the longest way to the end of its block (False: it stays behind what stands before it);
    `least_gain`: a block keeps its order unless it becomes shorter by this part (a kernel's own order has reasons that
    a model of one warp does not see); `spread`: beside mma.sync in mode fiber arithmetic counts so many times, so that
    it leaves issue slots and read ports to the products, which need all their ports at once, and to other wefts.
    """

    enabled: bool = True
    lookahead: int = 1024
    early_waits: bool = True
    least_gain: float = 0.1
    spread: float = 4.0

    def run(self, program: DraftProgram, machine: Machine) -> DraftProgram:
        """Return the program with its blocks reordered; a role that could then not be allocated keeps its order."""
        if not self.enabled:
            return program
        roles = tuple(self._role(role, program, machine) for role in program.roles)
        return replace(program, roles=roles)

    def _role(self, role: RoleDraft, program: DraftProgram, machine: Machine) -> RoleDraft:
        code, marks = lifted(role.code)
        role = replace(role, code=code)
        live, settled = liveness(role.code), settled_by(role.code)
        source_peaks = live.peaks()
        budget = min(role.body.registers, machine.max_registers_per_thread, RZ)
        budgets: Limits = {"vector": budget, "uniform": UNIFORM_REGISTERS, "predicate": PREDICATES}
        spread = self.spread if program.tile.mode == "fiber" else 1.0
        blocks = [_block(role, program, ends, live, settled, machine, spread) for ends in regions(role.code)]
        for share in SHARES:
            limits = {file: _between(source_peaks[file], most, share) for file, most in budgets.items()}
            code = tuple(draft for block in blocks for draft in self._best(block, limits))
            scheduled = replace(role, code=code)
            if scheduled.code == role.code or _fits(scheduled, program, machine):
                return replace(scheduled, code=lowered(scheduled.code, marks))
        return replace(role, code=lowered(role.code, marks))

    def _best(self, block: _Block, limits: Limits) -> tuple[Draft, ...]:
        """The new order; the old one where that gains too little or takes more registers than it should."""
        if block.graph is None or block.pressure is None:
            return block.code
        pressure = block.pressure.within(limits)
        new = reorder(block.graph, block.distance, pressure, Options(self.lookahead, self.early_waits))
        if new.cycles > block.cycles * (1 - self.least_gain) or pressure.exceeds():
            return block.code
        return tuple(block.code[index] for index in new.order)


def _block(
    role: RoleDraft,
    program: DraftProgram,
    ends: tuple[int, int],
    live: Liveness,
    settled: Mapping[int, Elements],
    machine: Machine,
    spread: float,
) -> _Block:
    start, end = ends
    code = role.code[start:end]
    if len(code) < SHORTEST or any(draft.op in KEPT for draft in code):
        return _Block(code)
    here = {i - start: registers for i, registers in settled.items() if start <= i < end}
    beside = any(draft.op == "HMMA" for draft in code)
    graph = dependences(code, program.effects, here, role.body.warps, machine, spread if beside else 1.0)
    pressure = Pressure.of(role.code, live, start, end)
    return _Block(code, graph, pressure, tuple(distances(graph)), in_order(graph))


def _between(low: int, high: int, share: float) -> int:
    return max(low, min(high, low + floor((high - low) * share)))


def _fits(role: RoleDraft, program: DraftProgram, machine: Machine) -> bool:
    try:
        AllocateRegisters().run(replace(program, roles=(role,)), machine)
    except UserError:
        return False
    return True


__all__ = ["Schedule"]
