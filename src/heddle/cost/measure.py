"""Measure the units with a library: cost of each block and energy of each event, kept in the user's cache folder."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from heddle.cost import cache, gates, power, stimulus, timing, unit_cost
from heddle.cost.blocks import Block, blocks
from heddle.cost.synth import Flow, synthesise
from heddle.cost.verilog import sources
from heddle.machine.spec import Machine

Measured = dict[str, Any]
_MODULES = (gates, power, stimulus, timing, unit_cost)
"""Whose source decides what is measured, beside the netlists."""


def measure(machine: Machine, liberty: Path, report: Any = None) -> Measured:
    """Return the library's voltage and, by block, cost, energies of events (fJ), clock (fJ a cycle) and leakage (uW).

    Raises UserError without Yosys or where the machine has no such units.
    """
    flow, every = Flow(tuple(sources()), liberty), blocks(machine)
    code = [Path(str(module.__file__)).read_bytes() for module in _MODULES]
    given = json.dumps({name: [one.module, one.parameters] for name, one in every.items()}, sort_keys=True)
    texts = [path.read_bytes() for path in flow.sources]
    name = "measured-" + cache.key([given, liberty.read_bytes(), *texts, *code])
    found = cache.kept(name, lambda: _measure(every, flow, report))
    for block in every.values():  # how often an SM has a block decides nothing that is kept
        found["blocks"][block.name]["copies"] = block.copies
    return found


def _measure(every: dict[str, Block], flow: Flow, report: Any) -> Measured:
    rows = {}
    for done, block in enumerate(every.values()):
        if report:
            report(done, len(every), block.name)
        rows[block.name] = _block(block, flow)
    library = flow.library
    latch, flop = (_area(library, kind) for kind in (True, False))
    return {
        "library": library.name, "file": flow.liberty.name, "voltage_v": library.voltage_v,
        "temperature_c": library.temperature_c, "latch_area": latch, "flop_area": flop, "blocks": rows,
    }  # fmt: skip


def _area(library: Any, latch: bool) -> float:
    """Return the area of the smallest latch or flop that has one; zero where the library states none."""
    areas = [c.area for c in library.cells.values() if c.storage and c.storage.latch == latch and c.area]
    return min(areas, default=0.0)


def _block(block: Block, flow: Flow) -> dict[str, Any]:
    netlist = synthesise(block.module, block.parameters, flow)
    around = unit_cost.conditions(netlist)
    found = timing.analyse(netlist, around)
    row: dict[str, Any] = {"cost": asdict(unit_cost.cost_of(netlist, timing=found)), "events": {}}
    for name, event in stimulus.events(block.module, netlist).items():
        changes, happened = stimulus.play(netlist, event)
        spent = power.energy(netlist, changes, found, around)
        row["events"][name] = spent.logic_fj / happened
        row |= {"clock_fj": spent.clock_fj, "leakage_uw": spent.leakage_uw}
    return row
