"""Energy of each event of FIBER's units in an SM at 7 nm, from measured blocks; and the table of them that is shipped.

A change of a bit of E goes to every subpartition's replica: there one slice of one home takes it, the others see the
fields change. `python -m heddle.cost.energies FILE` measures again and writes the shipped table.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heddle.cost.blocks import LANES, SLICE_LANES, SLICE_REGISTERS
from heddle.cost.scaling import energy_ratio
from heddle.machine.spec import Machine

FILE = Path(__file__).with_name("energies.json")
COMMAND = "python -m heddle.cost.energies LIBERTY"
BITMAP = ("empty_home_lean", "full_home_lean")
"""The bitmap whose energies count: one set and one clear of each subpartition a cycle."""
OTHERS = ("selector", "decode_extension", "read_port_arbiter", "crossbar", "bind_latch", "weft_context")


@dataclass(frozen=True, slots=True)
class Energies:
    """Energies in fJ by event; what the clock costs in every cycle, fJ, by what it drives; leakage in uW, of an SM."""

    source: dict[str, str]
    voltage_v: float
    events: dict[str, float]
    clock: dict[str, float]
    leakage_uw: float


def of_measured(measured: dict[str, Any], machine: Machine, node: str = "7", command: str = COMMAND) -> Energies:
    """Return the energies of an SM, scaled to 7 nm and 0.7 V where the library is of another node."""
    blocks = measured["blocks"]
    scale = 1.0 if node == "7" else energy_ratio(node, measured["voltage_v"])
    parts = machine.subpartitions
    slices = machine.vector_registers // parts // SLICE_REGISTERS
    empty, full = (blocks[name]["events"] for name in BITMAP)
    simple = {name: blocks[name]["events"] for name in OTHERS}
    events = {
        "instruction": simple["selector"]["instruction"] + simple["decode_extension"]["instruction"],
        "request": simple["read_port_arbiter"]["request"],
        "transfer": simple["crossbar"]["transfer"] * LANES / SLICE_LANES,
        "lookup_empty": _one(empty, "lookup", parts * slices),
        "lookup_full": _one(full, "lookup", slices),
        "bind": simple["bind_latch"]["issue"],
        "set_fiber_num": simple["weft_context"]["set_fiber_num"],
    }
    for change in ("set", "clear"):
        events[f"empty_{change}"] = parts * _one(empty, change, parts * slices)
        events[f"full_{change}"] = _one(full, change, parts * slices)
    counted = {name: blocks[name]["copies"] for name in (*OTHERS, *BITMAP)}
    clock = {name: blocks[name]["clock_fj"] * count * scale for name, count in counted.items()}
    leakage = sum(blocks[name]["leakage_uw"] * count for name, count in counted.items())
    source = {
        "liberty": measured["file"], "library": measured["library"], "node": f"{node} nm",
        "scaled": "" if node == "7" else "to 7 nm and 0.7 V by Stillmaker and Baas; leakage as it is",
        "machine": machine.name, "command": command,
    }  # fmt: skip
    return Energies(
        source, 0.7 if node != "7" else measured["voltage_v"],
        {name: value * scale for name, value in events.items()},
        {name: value for name, value in clock.items() if value}, leakage,
    )  # fmt: skip


def _one(events: dict[str, float], name: str, slices: int) -> float:
    """Return what a change or look-up costs: one slice takes it, the others see its fields."""
    return events[name] + (slices - 1) * events[f"{name}_miss"]


def shipped() -> Energies:
    """Return the table of the package, which needs no tool."""
    return Energies(**json.loads(FILE.read_text("utf-8")))


def main(liberty: Path, gpu: str = "a100") -> None:
    """Measure with a library of 7 nm and write the shipped table."""
    from heddle.cost.measure import measure
    from heddle.files import write_whole
    from heddle.machine import machine, with_fiber

    target = with_fiber(machine(gpu))
    write_whole(FILE, json.dumps(asdict(of_measured(measure(target, liberty), target)), indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
