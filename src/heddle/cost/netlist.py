"""A mapped netlist: instances of cells and the nets between them, from and to Yosys' JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from heddle.cost.cells import Cell, Library

Net = int | str
"""A number, or "0", "1" and "x" for a constant."""


@dataclass(slots=True)
class Instance:
    """A cell in a netlist: its type and the net of each pin."""

    kind: str
    nets: dict[str, Net]


@dataclass(slots=True)
class Netlist:
    """A module of cells; ports have their nets, lowest bit first."""

    name: str
    library: Library
    cells: dict[str, Instance] = field(default_factory=dict)
    inputs: dict[str, list[Net]] = field(default_factory=dict)
    outputs: dict[str, list[Net]] = field(default_factory=dict)

    def cell(self, instance: Instance) -> Cell:
        """Return the cell of an instance. Raises RuntimeError where the library lacks it."""
        if instance.kind not in self.library.cells:
            raise RuntimeError(f"{self.name}: {self.library.name} has no cell {instance.kind}")
        return self.library.cells[instance.kind]

    def drivers(self) -> dict[Net, tuple[str, str]]:
        """Return instance and output pin that drive each net; nets of inputs have none."""
        return {net: (name, pin) for name, pin, net, output in self._pins() if output}

    def loads(self) -> dict[Net, list[tuple[str, str]]]:
        """Return the instances and input pins at each net."""
        found: dict[Net, list[tuple[str, str]]] = {}
        for name, pin, net, output in self._pins():
            if not output and isinstance(net, int):
                found.setdefault(net, []).append((name, pin))
        return found

    def _pins(self) -> Iterator[tuple[str, str, Net, bool]]:
        for name, instance in self.cells.items():
            pins = self.cell(instance).pins
            for pin, net in instance.nets.items():
                yield name, pin, net, pins[pin].output

    def clocks(self) -> set[Net]:
        """Return the nets at clock pins of flops."""
        found = set()
        for instance in self.cells.values():
            cell = self.cell(instance)
            if cell.storage and not cell.storage.latch:
                found |= {instance.nets[pin.name] for pin in cell.inputs if pin.name in cell.storage.clock}
        return found

    @property
    def area(self) -> float:
        """Return the area of its cells."""
        return sum(self.cell(one).area for one in self.cells.values())

    @property
    def storage_area(self) -> float:
        """Return the area of its flops and latches."""
        return sum(cell.area for cell in map(self.cell, self.cells.values()) if cell.storage)

    def new_net(self) -> int:
        """Return the number after the highest that is in use."""
        used = [net for _, _, net, _ in self._pins() if isinstance(net, int)]
        used += [
            net for nets in (*self.inputs.values(), *self.outputs.values()) for net in nets if isinstance(net, int)
        ]
        return max(used, default=1) + 1


def from_json(data: dict[str, Any], name: str, library: Library) -> Netlist:
    """Return the module of a name from what Yosys' `write_json` wrote."""
    module = data["modules"][name]
    netlist = Netlist(name, library)
    for port, value in module["ports"].items():
        (netlist.inputs if value["direction"] == "input" else netlist.outputs)[port] = value["bits"]
    for cell, value in module["cells"].items():
        nets = {pin: bits[0] for pin, bits in value["connections"].items()}
        netlist.cells[cell] = Instance(value["type"], nets)
    return netlist


def to_json(netlist: Netlist) -> dict[str, Any]:
    """Return what Yosys' `read_json` reads."""
    ports = {name: {"direction": "input", "bits": nets} for name, nets in netlist.inputs.items()}
    ports |= {name: {"direction": "output", "bits": nets} for name, nets in netlist.outputs.items()}
    cells = {
        name: {
            "type": one.kind,
            "port_directions": {pin: "output" if netlist.cell(one).pins[pin].output else "input" for pin in one.nets},
            "connections": {pin: [net] for pin, net in one.nets.items()},
        }
        for name, one in netlist.cells.items()
    }
    return {"modules": {netlist.name: {"ports": ports, "cells": cells, "netnames": {}}}}
