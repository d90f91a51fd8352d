"""Synthesis: a module mapped to the cells of a Liberty file by Yosys; cells and area, before layout."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heddle.cost.tools import YOSYS, need
from heddle.cost.yosys import read, yosys
from heddle.errors import UserError

OSU018 = Path("/usr/share/qflow/tech/osu018/osu018_stdcells.lib")
"""The library of Debian's package qflow-tech-osu018: 180 nm, 1.8 V."""
MAX_FAN_OUT = 12
NETLISTS = ("selector", "decode_extension", "read_port_arbiter", "crossbar", "bind_latch")
"""Units that are synthesised; the bitmap and the weft contexts are not yet."""
_SCRIPT = f"&get -n; &st; &dch; &nf; &put; topo; buffer -p -N {MAX_FAN_OUT}; topo; upsize; dnsize\n"


@dataclass(frozen=True, slots=True)
class Netlist:
    """What a unit became. Areas are in the unit of the library, square micrometres as a rule."""

    unit: str
    cells: int
    area: float
    flop_area: float
    by_cell: dict[str, int]


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


def synthesise(
    unit: str, sources: Sequence[Path], parameters: dict[str, int], liberty: Path, prove: bool = False
) -> Netlist:
    """Map a module to cells; `prove`: and prove that the netlist of a module without memory is equal to the source.

    Raises UserError without Yosys, RuntimeError if it fails, leaves cells unmapped, or the netlist differs.
    """
    need([YOSYS], "synthesis")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(liberty, folder / "cells.lib")
        (folder / "map.abc").write_text(_SCRIPT, "utf-8")
        source = read(sources, folder, unit, parameters)
        commands = (
            f"{source}; synth -top {unit} -flatten; dfflibmap -liberty cells.lib; opt; "
            "abc -liberty cells.lib -script map.abc; opt_clean -purge; "
            "tee -q -o stat.json stat -json -liberty cells.lib; write_verilog -noattr -noexpr netlist.v"
        )
        yosys(f"{commands}; {_equivalence(source, unit)}" if prove else commands, folder, "synthesis")
        design = json.loads((folder / "stat.json").read_text("utf-8"))["modules"][f"\\{unit}"]
    left = sorted(cell for cell in design["num_cells_by_type"] if cell.startswith("$"))
    if left:
        raise RuntimeError(f"{unit}: {liberty.name} has no cells for {', '.join(left)}")
    return Netlist(
        unit, design["num_cells"], float(design["area"]), float(design["sequential_area"]), design["num_cells_by_type"]
    )


def _equivalence(source: str, unit: str) -> str:
    """Return the commands that compare the netlist, by the functions that the library states, with the source."""
    return (
        f"design -reset; {source}; prep -flatten -top {unit}; rename {unit} gold; design -stash gold; "
        f"read_liberty -ignore_miss_func cells.lib; read_verilog netlist.v; prep -flatten -top {unit}; "
        f"rename {unit} gate; design -stash gate; design -copy-from gold gold; design -copy-from gate gate; "
        "miter -equiv -make_assert -flatten gold gate miter; hierarchy -top miter; sat -verify -prove-asserts miter"
    )
