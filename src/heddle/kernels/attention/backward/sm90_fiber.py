"""Attention backward on H100 with FIBER: products in wefts of their own, joined by shared registers.

A FIBER-thread keeps 128 keys of a query head, two blocks of 64, and goes through the queries that see them. One group
of four wefts multiplies S^T = K Q^T and dP^T = V dO^T of a block of keys into registers of its own and differentiates;
P and dS go to the pool, where they are first operands of dV += P^T dO and dK += dS^T Q, and dS to shared memory, too,
transposed, for dQ = dS K. dV, dK and dQ are made by groups of their own, which only multiply. While one block of keys
is differentiated the products of the other run, and those of the block of queries before.

Each weft that differentiates reads every row statistic. Four others load them into the pool, a quarter in each
subpartition, and the crossbar brings them to all: shared memory gives them once and not eight times.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from heddle.kernels._channels import BitChannel
from heddle.kernels.attention.backward.shape import backward_flops
from heddle.kernels.attention.backward.sm90_fiber_config import BLOCK, HALVES, FiberBackward90Config, registers, windows
from heddle.kernels.attention.backward.sm90_fiber_memory import GROUP, Memory
from heddle.kernels.attention.backward.sm90_fiber_products import KeyGradient, QueryGradient
from heddle.kernels.attention.backward.sm90_fiber_rows import Rows
from heddle.kernels.attention.backward.sm90_fiber_statistics import Statistics
from heddle.kernels.attention.backward.sm90_fiber_turns import Station, Turns
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, GlobalHandle, kernel


def stations(config: FiberBackward90Config) -> list[Station]:
    """Return a cycle of products: S and dP of a block of keys, then dV, dK and dQ of what has been differentiated."""
    found = []
    for half in range(HALVES):
        before = (half - 1) % HALVES
        values = f"dv{before}" if config.slots > 1 else "dv"
        found += [
            Station("rows", f"s{half}"),
            Station("rows", f"dp{half}"),
            Station(values, f"dv{before}"),
            Station("dk", f"dk{before}"),
        ]
        if half < config.parts:
            found.append(Station("dq", f"dq{half}"))
    return found


class Backward:
    """The roles of the kernel and what they share."""

    def __init__(
        self, k: Builder, problem: AttentionProblem, config: FiberBackward90Config, items: dict[str, list[int]]
    ) -> None:
        self.k, self.problem, self.config, self.items = k, problem, config, items
        self.memory, self.turns = Memory(k, problem, config), Turns(k, stations(config))
        self.place, self.own = windows(problem, config), registers(problem, config)
        weights, gradients = self._slots("weights"), self._slots("gradients")
        self.statistics = Statistics(k, config, self.memory)
        self.rows = Rows(k, problem, config, self.memory, self.turns, self.statistics, weights, gradients)
        self.dq = QueryGradient(k, config, self.memory, self.turns)
        halves = tuple(range(HALVES))
        of_values = {f"dv{half}": (half,) for half in halves} if config.slots > 1 else {"dv": halves}
        self.values = {
            name: KeyGradient(k, problem, self.turns, "dv", mine, weights, self.memory.outputs)
            for name, mine in of_values.items()
        }
        self.keys = KeyGradient(k, problem, self.turns, "dk", halves, gradients, self.memory.queries)

    def _slots(self, name: str) -> list[BitChannel]:
        """P or dS of each block of keys; with one slot both are the same tensor."""
        count, shape = self.config.slots, (BLOCK, self.config.tile_m)
        made = [BitChannel(self.k, f"{name}{i}", shape, self.problem.dtype) for i in range(count)]
        return [made[half % count] for half in range(HALVES)]

    def begin(self) -> None:
        """Spawn the wefts of all roles."""
        add = {"add": 1} if self.config.dq == "bulk" else {}
        values = dict.fromkeys(self.values, GROUP)
        self.k.set_fiber_num(load=1, **add, statistics=GROUP, rows=GROUP, **values, dk=GROUP, dq=GROUP)

    def _role(self, name: str) -> AbstractContextManager[None]:
        return self.k.role(name, window=self.place[name], registers=self.own[name])

    def copies(self) -> None:
        """The wefts that copy: blocks to shared memory, dQ from there, row statistics to the pool."""
        with self._role("load"):
            for item in self.k.work():
                self.memory.load(item, any(self.items["more"]))
        if self.config.dq == "bulk":
            with self._role("add"):
                for item in self.k.work():
                    self.memory.add(item)
        with self._role("statistics"):
            for item in self.k.work():
                self.statistics.load(item)

    def differentiation(self) -> None:
        """The wefts that make P and dS; they begin the cycle of turns."""
        with self._role("rows"):
            for item in self.k.work():
                self.rows.run(item, any(self.items["masked"]), any(self.items["plain"]))
            self.turns.skip(*(station.name for station in self.turns.stations if station.role == "rows"))
            self.turns.close()

    def key_gradients(self) -> None:
        """The wefts that add up dV and dK."""
        tensors = self.memory.tensors
        for name, gradient in self.values.items():
            with self._role(name):
                self._gradient(gradient, tensors.dv, 1.0)
        with self._role("dk"):
            if self.turns.last == "dk":
                self.turns.open()
            self._gradient(self.keys, tensors.dk, self.problem.scale)

    def _gradient(self, gradient: KeyGradient, target: GlobalHandle, scale: float) -> None:
        gradient.open()
        for item in self.k.work():
            gradient.add(item)
            gradient.store(item, target, scale, reduce=self.memory.tensors.shared_heads)
        gradient.close()

    def query_gradient(self) -> None:
        """The wefts that make dQ."""
        with self._role("dq"):
            if self.turns.last == "dq":
                self.turns.open()
            self.dq.open()
            for item in self.k.work():
                self.dq.add(item)


@kernel
def attention_bwd_fiber(
    k: Builder, problem: AttentionProblem, config: FiberBackward90Config, items: dict[str, list[int]], clusters: int
) -> None:
    """Persistent over blocks of keys; every hand-over between wefts is a pool tensor or an mbarrier."""
    k.flops = backward_flops(problem)
    k.work_items(items, clusters=clusters, schedule=config.order)
    backward = Backward(k, problem, config, items)
    backward.begin()
    backward.copies()
    backward.differentiation()
    backward.key_gradients()
    backward.query_gradient()
