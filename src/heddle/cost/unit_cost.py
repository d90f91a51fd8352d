"""What a unit costs: area, cells, timing at a clock, of the mapped netlist."""

from __future__ import annotations

import math
from dataclasses import dataclass

from heddle.cost.buffering import buffer_of
from heddle.cost.cells import Library
from heddle.cost.netlist import Netlist
from heddle.cost.timing import Conditions, Timing, analyse

CLOCK_GHZ = 2.5
"""The paper's."""
LOADS = 4
"""Buffer inputs that an output of a unit drives."""


@dataclass(frozen=True, slots=True)
class UnitCost:
    """Area in the unit of the library (um2 as a rule), times in ps.

    `arrival` is when the worst end has its value, `needed` that and its setup or what follows the output (a tenth of
    the period), `slack` what a period leaves. `stages` of pipeline make a unit meet the clock.
    """

    unit: str
    cells: int
    buffers: int
    area: float
    flop_area: float
    leakage_uw: float
    arrival_ps: float
    needed_ps: float
    slack_ps: float
    end: str
    stages: int


def conditions(netlist: Netlist, clock_ghz: float = CLOCK_GHZ) -> Conditions:
    """Return what is around a unit: inputs as steep as a buffer of the library makes them, outputs at four buffers."""
    slew, load = _around(netlist.library)
    return Conditions.at(clock_ghz, netlist, slew, load)


def _around(library: Library) -> tuple[float, float]:
    buffer = buffer_of(library)
    load = LOADS * buffer.inputs[0].capacitance
    tables = [arc.slew[edge] for arc in buffer.outputs[0].arcs for edge in arc.slew]
    return max(table.at(table.first[0], load) for table in tables), load


def cost_of(netlist: Netlist, clock_ghz: float = CLOCK_GHZ, timing: Timing | None = None) -> UnitCost:
    """Return area and timing of a mapped unit."""
    around = conditions(netlist, clock_ghz)
    timing = timing or analyse(netlist, around)
    needed, end = timing.needed, timing.worst_end
    arrival = timing.arrival[timing.end_edges[end]] if end else 0.0
    outside = around.input_delay + around.output_delay
    inside = max(needed - outside, 0.0)
    return UnitCost(
        netlist.name,
        len(netlist.cells),
        sum(name.startswith("fanout") for name in netlist.cells),
        netlist.area,
        netlist.storage_area,
        sum(netlist.cell(one).leakage for one in netlist.cells.values()) * 1e-3,
        arrival,
        needed,
        around.period - needed,
        end,
        max(1, math.ceil(inside / (around.period - outside))),
    )
