"""Synthesis: a module mapped to the cells of a Liberty file by Yosys, and its fan-out repaired; before layout."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heddle.cost import cache
from heddle.cost.buffering import MAX_FAN_OUT, repair
from heddle.cost.cells import Cell, Library, load
from heddle.cost.netlist import Netlist, from_json, to_json
from heddle.cost.tools import YOSYS, need
from heddle.cost.yosys import read, yosys
from heddle.errors import UserError

OSU018 = Path("/usr/share/qflow/tech/osu018/osu018_stdcells.lib")
"""The library of Debian's package qflow-tech-osu018: 180 nm, 1.8 V."""
SLOW = 2.5
"""Cells that take so many times as long as the quickest inverter, each with four of its own inputs to drive, are not
used: the mapper looks at no loads and likes wide gates with weak transistors."""
_SCRIPT = (
    f"&get -n; &st; &syn3; &syn3; &b -d; &syn4; &st; &dch; &nf -R 10 -F 3; &put; topo; "
    f"buffer -p -N {MAX_FAN_OUT}; topo; upsize; dnsize\n"
)
_LATCHES = """module \\$_DLATCH_P_ (input E, input D, output Q); {high} endmodule
module \\$_DLATCH_N_ (input E, input D, output Q); {low} endmodule
"""


@dataclass(frozen=True, slots=True)
class Flow:
    """What a module is mapped with."""

    sources: tuple[Path, ...]
    liberty: Path

    @property
    def library(self) -> Library:
        """Return its cells."""
        return load(self.liberty)


def library(path: Path | None) -> Path:
    """Return the Liberty file to use: a given one, else Debian's. Raises UserError where there is none."""
    if path is None and OSU018.is_file():
        return OSU018
    if path is None:
        raise UserError(
            "synthesis needs a Liberty file, and osu018 of Debian is not installed",
            hint="apt-get install qflow-tech-osu018, or --liberty FILE",
        )
    if not path.is_file():
        raise UserError(f"there is no Liberty file {str(path)!r}")
    return path


def synthesise(unit: str, parameters: dict[str, int], flow: Flow, prove: bool = False) -> Netlist:
    """Return a module as cells; what was mapped before comes from the user's cache.

    `prove`: and prove that the netlist of a module without memory is equal to the source. Raises UserError without
    Yosys, RuntimeError if it fails, leaves cells unmapped, or the netlist differs.
    """
    texts = [path.read_bytes() for path in flow.sources]
    given = json.dumps(parameters, sort_keys=True)
    name = cache.key([unit, given, _script(flow.library), _version(), flow.liberty.read_bytes(), *texts])
    data = cache.kept(name, lambda: _map(unit, parameters, flow))
    left = sorted({one["type"] for one in data["modules"][unit]["cells"].values()} - set(flow.library.cells))
    if left:
        raise RuntimeError(f"{unit}: {flow.liberty.name} has no cells for {', '.join(left)}")
    netlist = from_json(data, unit, flow.library)
    repair(netlist)
    if prove:
        _prove(unit, parameters, flow, netlist)
    return netlist


def _version() -> str:
    try:
        return importlib.metadata.version(YOSYS)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _map(unit: str, parameters: dict[str, int], flow: Flow) -> dict[str, Any]:
    need([YOSYS], "synthesis")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(flow.liberty, folder / "cells.lib")
        (folder / "map.abc").write_text(_SCRIPT, "utf-8")
        latches = _latches(flow.library)
        (folder / "latches.v").write_text(latches, "utf-8")
        source = read(flow.sources, folder, unit, parameters)
        unused = "".join(f" -dont_use {cell}" for cell in slow_cells(flow.library))
        commands = (
            f"{source}; synth -top {unit} -flatten; {'techmap -map latches.v; ' if latches else ''}"
            f"dfflibmap -liberty cells.lib; opt; abc -liberty cells.lib -script map.abc{unused}; opt_clean -purge; "
            f"setundef -zero; opt_clean -purge; {_constants(flow.library)}; write_json netlist.json"
        )
        yosys(commands, folder, "synthesis")
        data: dict[str, Any] = json.loads((folder / "netlist.json").read_text("utf-8"))
    module = data["modules"][unit]
    cells = {cell: {"type": one["type"], "connections": one["connections"]} for cell, one in module["cells"].items()}
    return {"modules": {unit: {"ports": module["ports"], "cells": cells}}}


def _script(cells: Library) -> str:
    return _SCRIPT + _latches(cells) + " ".join(slow_cells(cells))


def slow_cells(cells: Library) -> list[str]:
    """Return the cells that are not used (see SLOW)."""
    gates = [cell for cell in cells.cells.values() if cell.inputs and cell.outputs and not cell.storage]
    delays = {cell.name: _fan_out_of_four(cell) for cell in gates if cell.outputs[0].function}
    quickest = min((delay for delay in delays.values() if delay > 0), default=0.0)
    one = [cell.name for cell in gates if len(cell.inputs) < 3]  # what every mapping needs
    return sorted(name for name, delay in delays.items() if delay > SLOW * quickest and name not in one)


def _fan_out_of_four(cell: Cell) -> float:
    load_ = 4 * max(pin.capacitance for pin in cell.inputs)
    arcs = [arc for pin in cell.outputs for arc in pin.arcs]
    slews = sorted(point for arc in arcs for table in arc.delay.values() for point in table.first)
    slew = slews[len(slews) // 4] if slews else 0.0
    return max((arc.delay[edge].at(slew, load_) for arc in arcs for edge in arc.delay), default=0.0)


def _latches(cells: Library) -> str:
    """Return how Yosys' latches become those of the library; empty where it has none that are known to have an area."""
    found: dict[bool, str] = {}
    for cell in cells.cells.values():
        kept = cell.storage
        if kept and kept.latch and cell.area and kept.data in cell.pins and len(cell.inputs) == 2:
            (gate,) = [pin.name for pin in cell.inputs if pin.name != kept.data]
            out = cell.outputs[0]
            ports = f".{gate}({{}}), .{kept.data}({{}}), .{out.name}(Q)"
            if out.function == kept.state:
                found[kept.clock.strip("() ") == gate] = f"{cell.name} kept ({ports.format('E', 'D')});"
    if not found:
        return ""
    other = next(iter(found.values())).replace("(E)", "(~E)")
    return _LATCHES.format(high=found.get(True, other), low=found.get(False, other))


def _constants(cells: Library) -> str:
    """Return the command that puts cells at constants, where the library has such."""
    ties = {cell.outputs[0].function: cell for cell in cells.cells.values() if not cell.inputs and cell.outputs}
    if "1" not in ties or "0" not in ties:
        return "opt_clean"
    high, low = ties["1"], ties["0"]
    return f"hilomap -singleton -hicell {high.name} {high.outputs[0].name} -locell {low.name} {low.outputs[0].name}"


def _prove(unit: str, parameters: dict[str, int], flow: Flow, netlist: Netlist) -> None:
    """Compare the netlist with its buffers, by the functions that the library states, with the source."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(flow.liberty, folder / "cells.lib")
        (folder / "netlist.json").write_text(json.dumps(to_json(netlist)), "utf-8")
        source = read(flow.sources, folder, unit, parameters)
        yosys(
            f"{source}; prep -flatten -top {unit}; rename {unit} gold; design -stash gold; "
            f"read_liberty -ignore_miss_func cells.lib; read_json netlist.json; prep -flatten -top {unit}; "
            f"rename {unit} gate; design -stash gate; design -copy-from gold gold; design -copy-from gate gate; "
            "miter -equiv -make_assert -flatten gold gate miter; hierarchy -top miter; "
            "sat -verify -prove-asserts miter",
            folder,
            "the proof of a netlist",
        )
