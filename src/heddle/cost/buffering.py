"""Fan-out repair: balanced trees of buffers on every net with many loads.

The mapper counts no load on nets that a flop or an input drives, and puts no buffer there (YosysHQ/yosys issue 3165).
"""

from __future__ import annotations

from heddle.cost.cells import Cell, Library
from heddle.cost.netlist import Instance, Net, Netlist
from heddle.errors import UserError

MAX_FAN_OUT = 12
_SLEW_PS = 20.0
"""At which buffers are compared; only their order matters."""


def buffer_of(library: Library) -> Cell:
    """Return the buffer for trees: the quickest that drives MAX_FAN_OUT of itself. Raises UserError without any."""
    buffers = [cell for cell in library.cells.values() if _is_buffer(cell)]
    if not buffers:
        raise UserError(f"the library {library.name} has no buffer")
    return min(buffers, key=lambda cell: (_delay(cell), cell.area))


def _is_buffer(cell: Cell) -> bool:
    if len(cell.inputs) != 1 or len(cell.outputs) != 1 or cell.storage or not cell.area:
        return False
    return cell.outputs[0].function.strip("() ") == cell.inputs[0].name


def _delay(cell: Cell) -> float:
    load = MAX_FAN_OUT * cell.inputs[0].capacitance
    return max(arc.delay[edge].at(_SLEW_PS, load) for arc in cell.outputs[0].arcs for edge in arc.delay)


def repair(netlist: Netlist, limit: int = MAX_FAN_OUT) -> int:
    """Put buffers on every net with more than `limit` loads, clocks apart; return how many were added."""
    buffer = buffer_of(netlist.library)
    source, target = buffer.inputs[0].name, buffer.outputs[0].name
    following, added = netlist.new_net(), 0
    clocks, loads = netlist.clocks(), netlist.loads()
    ports = {net for nets in netlist.outputs.values() for net in nets}
    for net in sorted(net for net in loads if isinstance(net, int) and net not in clocks):
        pins = loads[net]
        room = limit - (net in ports)  # the port stays where it is
        while len(pins) > room:
            level: list[tuple[str, str]] = []
            for group in _parts(pins, limit):
                name = f"fanout{following}"
                netlist.cells[name] = Instance(buffer.name, {source: net, target: following})
                _connect(netlist, group, following)
                level.append((name, source))
                following, added = following + 1, added + 1
            pins = level
    return added


def _parts(pins: list[tuple[str, str]], limit: int) -> list[list[tuple[str, str]]]:
    """Return as few groups as do, all of nearly the same size; loads that are near in the netlist stay together."""
    count = -(-len(pins) // limit)
    return [pins[k * len(pins) // count : (k + 1) * len(pins) // count] for k in range(count)]


def _connect(netlist: Netlist, pins: list[tuple[str, str]], net: Net) -> None:
    for name, pin in pins:
        netlist.cells[name].nets[pin] = net
