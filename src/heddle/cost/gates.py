"""Simulate a mapped netlist with many independent runs at once: a bit of a word is a run, a Python integer a net.

The functions are those of the library. It is a simulation without delays: what a net does more than one change a cycle
(glitches) is not seen. Beside a Verilog simulator with a trace file it needs no tool, and is quicker: one operation
computes a gate for all runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from heddle.cost.cells import Cell
from heddle.cost.functions import expression
from heddle.cost.netlist import Instance, Net, Netlist
from heddle.cost.timing import CLOCK, order

CHUNK = 1000
"""Statements of a compiled function."""
Step = Callable[[list[int]], None]


@dataclass(slots=True)
class Toggles:
    """Changes of every net, summed over cycles and runs."""

    runs: int
    cycles: int = 0
    of: dict[Net, int] = field(default_factory=dict)

    def rate(self, net: Net) -> float:
        """Return the changes a cycle of one run."""
        return self.of.get(net, 0) / (self.runs * self.cycles) if self.cycles else 0.0


class Gates:
    """A netlist with `runs` runs. The state starts at zero."""

    def __init__(self, netlist: Netlist, runs: int = 64) -> None:
        self.netlist, self.runs = netlist, runs
        self.all = (1 << runs) - 1
        self._place: dict[Net, int] = {"0": 0, "1": 1, "x": 0}
        self._names: dict[int, Net] = {}
        statements, flops = self._statements()
        self.values = [0, self.all] + [0] * (len(self._place) - 3)
        self._logic = [self._compiled(statements[k : k + CHUNK]) for k in range(0, len(statements), CHUNK)]
        self._edge = [self._compiled(flops)]
        self.latches = any(c.storage and c.storage.latch for c in map(netlist.cell, netlist.cells.values()))
        self.toggles = Toggles(runs)
        self._before: list[int] | None = None

    def _at(self, net: Net) -> str:
        place = self._place.setdefault(net, len(self._place) - 1)
        self._names[place] = net
        return f"v[{place}]"

    def _statements(self) -> tuple[list[str], list[str]]:
        """Return the logic in order, and what the clock's edge does: all flops at once."""
        logic, targets, sources = [], [], []
        for name in order(self.netlist):
            instance = self.netlist.cells[name]
            cell = self.netlist.cell(instance)
            if cell.storage and not cell.storage.latch:
                state = self._at(f"{name}.state")
                targets.append(state)
                sources.append(self._function(cell.storage.data, instance, cell, state))
            elif cell.storage:
                logic.append(self._latch(cell, instance, f"{name}.state"))
            for pin in cell.outputs:
                if pin.name in instance.nets and pin.function:
                    kept = self._at(f"{name}.state") if cell.storage else ""
                    value = self._function(pin.function, instance, cell, kept)
                    logic.append(f"{self._at(instance.nets[pin.name])} = {value}")
        for nets in (*self.netlist.inputs.values(), *self.netlist.outputs.values()):
            for net in nets:
                self._at(net)
        return logic, [f"{', '.join(targets)}, = {', '.join(sources)}," if targets else "pass"]

    def _function(self, function: str, instance: Instance, cell: Cell, state: str) -> str:
        text, names = expression(function)
        given = {}
        for name in names:
            if cell.storage and name == cell.storage.state:
                given[name] = state
            elif cell.storage and name == cell.storage.inverse:
                given[name] = f"(M ^ {state})"
            else:
                given[name] = self._at(instance.nets.get(name, "0"))
        return text.format(**given)

    def _latch(self, cell: Cell, instance: Instance, name: str) -> str:
        assert cell.storage
        state = self._at(name)
        gate = self._function(cell.storage.clock, instance, cell, state)
        data = self._function(cell.storage.data, instance, cell, state)
        return f"g = {gate}; {state} = ({data} & g) | ({state} & (M ^ g))"

    def _compiled(self, statements: list[str]) -> Step:
        space: dict[str, Step] = {}
        body = "\n    ".join(statements or ["pass"])
        exec(f"def step(v, M={self.all}):\n    {body}\n", space)  # the text is made here, of a library's functions
        return space["step"]

    def reset(self) -> None:
        """Let a cycle with `reset` at one pass, which is not counted."""
        self.cycle({"reset": [self.all]} if "reset" in self.netlist.inputs else {})
        self.toggles, self._before = Toggles(self.runs), None

    def cycle(self, inputs: Mapping[str, list[int]]) -> dict[str, list[int]]:
        """Let a cycle pass: inputs by port, a word of runs for each of its nets; a port that is not named has zeros.

        Return the outputs before the clock's edge that ends the cycle.
        """
        for port, nets in self.netlist.inputs.items():
            given = inputs.get(port)
            for bit, net in enumerate(nets):
                self.values[self._place[net]] = given[bit] if given else 0
        for phase in (self.all, 0) if self.latches else (0,):
            for net in self.netlist.inputs.get(CLOCK, []):
                self.values[self._place[net]] = phase
            for step in self._logic:
                step(self.values)
            self._count()
        self.toggles.cycles += 1
        answer = {port: [self.values[self._place[net]] for net in nets] for port, nets in self.netlist.outputs.items()}
        for step in self._edge:
            step(self.values)
        return answer

    def _count(self) -> None:
        if self._before is not None:
            counts = self.toggles.of
            for place, (old, new) in enumerate(zip(self._before, self.values, strict=True)):
                if old != new:
                    net = self._names.get(place, "")
                    counts[net] = counts.get(net, 0) + (old ^ new).bit_count()
        self._before = list(self.values)
