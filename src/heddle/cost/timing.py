"""Static timing of a mapped netlist by the delay tables of its library (NLDM), before layout: wires have no load.

Arrival and slew of both edges go through the netlist from inputs and flops, the worst of each at every net. Flops and
latches start at the clock's edge that opens them; a latch also passes its data. All times are in ps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from heddle.cost.cells import EDGES, Arc, Cell, Pin
from heddle.cost.netlist import Instance, Net, Netlist

CLOCK = "clk"
"""The port of the clock; it rises at 0 and falls after half a period."""
OTHER = {"rise": "fall", "fall": "rise"}
Edge = tuple[Net, str]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is around a unit: clock period, when its inputs come and its outputs are due, slews and loads."""

    period: float
    input_delay: float
    output_delay: float
    slew: float  # of inputs and clock
    load: float  # fF at an output

    @classmethod
    def at(cls, clock_ghz: float, netlist: Netlist, slew: float, load: float) -> Conditions:
        """Return a clock with a tenth of its period before and after the unit, for the flops on both sides."""
        period = 1000.0 / clock_ghz
        return cls(period, period / 10, period / 10, slew, load)


@dataclass(slots=True)
class Timing:
    """Worst arrivals and slews, and the end that is worst: its arrival with its setup (or output delay), and slack."""

    arrival: dict[Edge, float] = field(default_factory=dict)
    slew: dict[Edge, float] = field(default_factory=dict)
    before: dict[Edge, Edge] = field(default_factory=dict)
    load: dict[Net, float] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)  # end: time that it needs of a period
    end_edges: dict[str, Edge] = field(default_factory=dict)

    @property
    def needed(self) -> float:
        """Return the shortest period that all ends can do with."""
        return max(self.ends.values(), default=0.0)

    @property
    def worst_end(self) -> str:
        """Return the name of the end that decides."""
        return max(self.ends, key=lambda end: self.ends[end], default="")

    def path(self, end: str) -> list[Edge]:
        """Return the nets of the worst path to an end, first to last."""
        edge, found = self.end_edges[end], []
        while True:
            found.append(edge)
            if edge not in self.before:
                return found[::-1]
            edge = self.before[edge]


def analyse(netlist: Netlist, conditions: Conditions) -> Timing:
    """Return the timing of a netlist. Raises RuntimeError where its logic has a loop without a flop."""
    timing = Timing(load=_loads(netlist, conditions))
    for port, nets in netlist.inputs.items():
        starts = {"rise": 0.0, "fall": conditions.period / 2} if port == CLOCK else {}
        for net in nets:
            if isinstance(net, int):
                for edge in EDGES:
                    _reach(timing, (net, edge), starts.get(edge, conditions.input_delay), conditions.slew, None)
    for name in order(netlist):
        _through(netlist.cells[name], netlist.cell(netlist.cells[name]), timing, conditions)
    _ends(netlist, timing, conditions)
    return timing


def _loads(netlist: Netlist, conditions: Conditions) -> dict[Net, float]:
    loads = {
        net: sum(netlist.cell(netlist.cells[name]).pins[pin].capacitance for name, pin in pins)
        for net, pins in netlist.loads().items()
    }
    for nets in netlist.outputs.values():
        for net in nets:
            loads[net] = loads.get(net, 0.0) + conditions.load
    return loads


def order(netlist: Netlist) -> list[str]:
    """Return the instances, each after those that it takes a value from in the same cycle: flops first."""
    drivers = netlist.drivers()
    graph: dict[str, set[str]] = {}
    for name, instance in netlist.cells.items():
        cell = netlist.cell(instance)
        needed: set[str] = graph.setdefault(name, set())
        if cell.storage and not cell.storage.latch:
            continue
        for pin in cell.inputs:
            net = instance.nets.get(pin.name, "x")
            if net in drivers:
                needed.add(drivers[net][0])
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise RuntimeError(f"{netlist.name}: a loop without a flop: {' '.join(error.args[1][:8])}") from None


def _reach(timing: Timing, at: Edge, arrival: float, slew: float, origin: Edge | None) -> None:
    if arrival > timing.arrival.get(at, -1.0):
        timing.arrival[at] = arrival
        if origin is not None:
            timing.before[at] = origin
    timing.slew[at] = max(slew, timing.slew.get(at, 0.0))


def _through(instance: Instance, cell: Cell, timing: Timing, conditions: Conditions) -> None:
    for pin in cell.outputs:
        net = instance.nets.get(pin.name)
        if not isinstance(net, int):
            continue
        load = timing.load.get(net, 0.0)
        for arc in pin.arcs:
            _along(instance, cell, arc, net, load, timing, conditions)


def _along(
    instance: Instance, cell: Cell, arc: Arc, net: Net, load: float, timing: Timing, conditions: Conditions
) -> None:
    """Take one arc: for each edge of the output the edges of the input that cause it."""
    source = instance.nets.get(arc.related)
    if not isinstance(source, int):
        return
    clocked = arc.kind != "combinational"
    for edge, delay in arc.delay.items():
        for cause in _causes(arc, edge):
            origin: Edge = (source, cause)
            if clocked and cell.storage and not cell.storage.latch:
                start, slew = 0.0, conditions.slew
            elif origin in timing.arrival:
                start, slew = timing.arrival[origin], timing.slew[origin]
            else:
                continue
            arrival = start + delay.at(slew, load)
            _reach(timing, (net, edge), arrival, arc.slew[edge].at(slew, load), origin)


def _causes(arc: Arc, edge: str) -> tuple[str, ...]:
    if arc.kind == "rising_edge":
        return ("rise",)
    if arc.kind == "falling_edge":
        return ("fall",)
    if arc.sense == "positive_unate":
        return (edge,)
    return (OTHER[edge],) if arc.sense == "negative_unate" else EDGES


def _ends(netlist: Netlist, timing: Timing, conditions: Conditions) -> None:
    for name, instance in netlist.cells.items():
        cell = netlist.cell(instance)
        if cell.storage:
            for pin in cell.inputs:
                if any(pin.setup.values()) and isinstance(instance.nets.get(pin.name), int):
                    _end(timing, f"{name}/{pin.name}", instance.nets[pin.name], pin, conditions)
    for port, nets in netlist.outputs.items():
        for bit, net in enumerate(nets):
            _end(timing, f"{port}[{bit}]", net, None, conditions)


def _end(timing: Timing, end: str, net: Net, pin: Pin | None, conditions: Conditions) -> None:
    for edge in EDGES:
        at = (net, edge)
        if at not in timing.arrival:
            continue
        tables = pin.setup[edge] if pin else ()
        setup = max((table.at(conditions.slew, timing.slew[at]) for table in tables), default=conditions.output_delay)
        needed = timing.arrival[at] + setup
        if needed > timing.ends.get(end, -1.0):
            timing.ends[end], timing.end_edges[end] = needed, at
