"""Do the Verilog units answer as the simulator's units do, and is a fault in one seen? Short runs by Icarus."""

from pathlib import Path
from random import Random

import pytest

from heddle.cost import icarus
from heddle.cost.cosimulate import cosimulate
from heddle.cost.tools import missing
from heddle.cost.units import UNITS
from heddle.cost.verilog import parameters_of, sources
from heddle.machine import machine

CYCLES = {"busy_bitmap": 40}
"""Where it is not 200."""
needs_icarus = pytest.mark.skipif(bool(missing(icarus.TOOLS)), reason=f"needs {', '.join(missing(icarus.TOOLS))}")

FAULTS = {
    "selector": ("selector", "member % BANKS", "(member + 1) % BANKS"),
    "decode_extension": ("decode_extension", "& ~(x & high)", "& ~x"),
    "read_ports": ("grant_chain", "(free & ~taken) | given", "(free & ~taken)"),
    "crossbar": ("crossbar", "enable[to] &&", "1'b1 ||"),
    "busy_bitmap": ("empty_home", "(empty & ~clear & ~range)", "(empty & ~range)"),
    "bind_latch": ("bind_latch", "is_bind ? bind_bits : {BITS{1'b0}}", "is_bind ? bind_bits : kept[BITS*c+:BITS]"),
    "weft_context": ("weft_context", "wanted & known & ~stay & ~past", "wanted & known & ~stay"),
}
"""For each unit the module, and text of it, that is made wrong."""


@needs_icarus
@pytest.mark.parametrize("name", UNITS)
def test_a_unit_answers_as_the_simulator(name: str) -> None:
    assert cosimulate(UNITS[name], machine("a100+fiber"), CYCLES.get(name, 200)) is None


@needs_icarus
@pytest.mark.parametrize("name", UNITS)
def test_a_fault_is_seen(name: str, tmp_path: Path) -> None:
    module, right, wrong = FAULTS[name]
    broken = tmp_path / f"{module}.v"
    text = (sources()[0].parent / broken.name).read_text("utf-8")
    assert right in text
    broken.write_text(text.replace(right, wrong), "utf-8")
    files = [broken if file.name == broken.name else file for file in sources()]
    small = machine("a100+fiber").replace(**UNITS[name].changes)
    trace = UNITS[name].play(small, Random(0), CYCLES.get(name, 200))
    assert "the simulator says" in (icarus.difference(name, files, parameters_of(small, name), trace) or "")
