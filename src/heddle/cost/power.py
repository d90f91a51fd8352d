"""Power of a mapped netlist by the changes of its nets: load, internal energy, clock pins, leakage.

A change costs C V^2 / 2 for the load and the internal energy of the cell that drives the net, at the slew and load that
the timing found: the mean of its edges, related pins and states. Clock pins of flops change twice a cycle; their load
and the energy inside count, the clock's own buffers do not. Wires have no load here. What an input pin costs inside a
cell whose output does not change is left out, clock pins apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.cost.cells import Cell, Pin
from heddle.cost.gates import Toggles
from heddle.cost.netlist import Instance, Netlist
from heddle.cost.timing import Conditions, Timing


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of a mean cycle by what it is for, fJ; leakage in uW."""

    load_fj: float
    internal_fj: float
    clock_fj: float
    leakage_uw: float

    @property
    def logic_fj(self) -> float:
        """Return what the changes of a mean cycle cost, without the clock's."""
        return self.load_fj + self.internal_fj

    def power_mw(self, clock_ghz: float) -> float:
        """Return the power at a clock that always runs."""
        return (self.logic_fj + self.clock_fj) * clock_ghz * 1e-3 + self.leakage_uw * 1e-3


def energy(netlist: Netlist, toggles: Toggles, timing: Timing, conditions: Conditions) -> Energy:
    """Return the energy of a mean cycle of one run."""
    half = netlist.library.voltage_v**2 / 2
    load = sum(toggles.rate(net) * timing.load.get(net, 0.0) * half for net in _driven(netlist))
    internal = clock = leakage = 0.0
    clocks = netlist.clocks()
    for instance in netlist.cells.values():
        cell = netlist.cell(instance)
        leakage += cell.leakage
        for pin in cell.outputs:
            if pin.name in instance.nets and (rate := toggles.rate(instance.nets[pin.name])):
                internal += rate * _internal(instance, pin, timing)
        clock += sum(clock_pin(pin, conditions, half) for pin in _clock_pins(cell, instance, clocks))
    return Energy(load, internal, clock, leakage * 1e-3)


def _driven(netlist: Netlist) -> list[int]:
    """Return the nets with a load that the unit or what is before it drives, clocks apart."""
    clocks = netlist.clocks()
    nets = {net for instance in netlist.cells.values() for net in instance.nets.values()}
    return [net for net in nets if isinstance(net, int) and net not in clocks]


def _internal(instance: Instance, pin: Pin, timing: Timing) -> float:
    """Return the energy inside a cell for a change of its output, fJ."""
    load = timing.load.get(instance.nets[pin.name], 0.0)
    values = []
    for related, states in pin.internal.items():
        source = instance.nets.get(related, "x")
        slew = max(timing.slew.get((source, edge), 0.0) for edge in ("rise", "fall"))
        values.append(sum(state.mean(slew, load) for state in states) / len(states))
    return sum(values) / len(values) if values else 0.0


def _clock_pins(cell: Cell, instance: Instance, clocks: set[int | str]) -> list[Pin]:
    if not cell.storage or cell.storage.latch:
        return []
    return [pin for pin in cell.inputs if instance.nets.get(pin.name) in clocks]


def clock_pin(pin: Pin, conditions: Conditions, half: float) -> float:
    """Return the energy of a clock pin in a cycle, fJ: two changes of its load, and inside the cell."""
    states = [state for group in pin.internal.values() for state in group]
    inside = 2 * sum(state.mean(conditions.slew, 0.0) for state in states) / len(states) if states else 0.0
    return 2 * pin.capacitance * half + inside
