"""Quick numbers of a tile program before it is simulated: cycles that it needs at least, and what simulating it costs.

Only an order, never a result: candidates far behind are not simulated. The bound of a cluster is the larger of its
matrix work and of its loads through the SM's port, over the items that it gets, plus for each item the latency that
nothing hides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import CpAsync, For, ForEachItem, Mma, Op, SharedRef, TileProgram, TmaLoad, When
from heddle.ir.warp import Count
from heddle.machine.spec import Machine

Cycles = NDArray[np.float64]  # one entry a work item

FULL_TURNS = 1_000_000
"""Loop turns of all items up to which a candidate is simulated in full; about a microsecond or two each."""
FULL_TURNS_FIBER = 20_000
"""The same in mode fiber, where many wefts share a turn and the engine skips no steady state: some 200 microseconds."""
MOST_TURNS = 14_000_000
"""Loop turns that are simulated at most: about 20 s."""


def _times(count: Count, items: Mapping[str, NDArray[np.int64]], length: int) -> Cycles:
    """Return a loop count for each of `length` work items."""
    base = items[count.attribute] if count.attribute else np.full(length, count.value)
    return np.maximum(np.asarray(base, np.float64) + count.offset, 0.0)


class _Bound:
    """Adds up the cycles of every work item over the operations of a role."""

    def __init__(self, program: TileProgram, machine: Machine) -> None:
        self.machine = machine
        self.items = dict(zip(program.work.attributes, program.work.items.T, strict=True))
        self.count = len(program.work.items)
        self.dtypes = {tile.name: tile.dtype for tile in program.shared}
        self.dtypes |= {tile.name: tile.dtype for tile in (*program.registers, *program.pool)}
        self.rows = {tile.name: tile.rows for tile in (*program.registers, *program.pool)}
        self.matrix: Cycles = np.zeros(self.count)
        self.loads: Cycles = np.zeros(self.count)

    def add(self, body: Iterable[Op], times: Cycles) -> None:
        """Add a body that runs `times` times for each item."""
        for op in body:
            if isinstance(op, ForEachItem):
                self.add(op.body, times)
            elif isinstance(op, For):
                self.add(op.body, times * _times(op.count, self.items, self.count))
            elif isinstance(op, When):
                self.add(op.body, times * (self.items[op.attribute] != 0))
            elif isinstance(op, Mma):
                self.matrix += times * self._matrix_cycles(op)
            elif isinstance(op, TmaLoad | CpAsync):
                self.loads += times * (self._bytes(op.dst) / self.machine.l2_port_bytes_per_cycle)

    def _matrix_cycles(self, op: Mma) -> float:
        rows = self.rows[op.a] if isinstance(op.a, str) else op.a.rows
        rate = self.machine.tensor_rate_scale.get(self.dtypes[op.b.tile], 1.0) * self.machine.tensor_flops_per_cycle
        return 2.0 * rows * op.columns * op.depth / (rate * op.ctas)

    def _bytes(self, box: SharedRef) -> int:
        return box.rows * box.cols * dtype_bytes(self.dtypes[box.tile])


def least_cycles(program: TileProgram, machine: Machine) -> float:
    """Return a rough lower bound of the cycles of the cluster with the most work."""
    bound = _Bound(program, machine)
    for role in program.roles:
        bound.add(role.body, np.ones(bound.count))
    exposed = machine.l2_near_latency_cycles + machine.store_latency_cycles
    clusters = min(program.work.grid, machine.sms // program.cluster_size)
    owner = np.arange(bound.count) % clusters
    matrix, loads = (np.bincount(owner, weights=cycles) for cycles in (bound.matrix, bound.loads))
    items = np.bincount(owner)
    return float((np.maximum(matrix, loads) + exposed * items).max())


def loop_turns(program: TileProgram) -> int:
    """Return the turns of loops (at least one) that all work items take together, each in its busiest role."""
    items, length = dict(zip(program.work.attributes, program.work.items.T, strict=True)), len(program.work.items)

    def turns(body: Iterable[Op], times: Cycles) -> Cycles:
        total: Cycles = np.zeros(length)
        for op in body:
            if isinstance(op, For):
                inner = times * _times(op.count, items, length)
                total += inner + turns(op.body, inner)
            elif isinstance(op, ForEachItem | When):
                total += turns(op.body, times)
        return total

    busiest = np.ones(length)
    for role in program.roles:
        busiest = np.maximum(busiest, turns(role.body, np.ones(length)))
    return int(busiest.sum())


def check_turns(kernel: str, needed: int) -> None:
    """Raise UserError if simulating so many loop turns would take longer than promised."""
    if needed > MOST_TURNS:
        raise UserError(
            f"the work items of this {kernel} take {needed:,} turns of their loops; at most {MOST_TURNS:,} are "
            "simulated, so that a run stays below 30 s on one core",
            hint="simulate a part, as half of the rows, and scale the time: beyond a few waves it grows with the work",
        )
