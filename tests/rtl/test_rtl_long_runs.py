"""Do the Verilog units answer as the simulator's units do for a million random cycles? Compiled by Verilator."""

from pathlib import Path
from random import Random

import pytest

from heddle.cost.compiled import TOOLS, Compiled
from heddle.cost.tools import missing
from heddle.cost.units import UNITS
from heddle.cost.verilog import parameters_of, sources
from heddle.machine import machine

CYCLES, RUN = 1_000_000, 5_000
needs_compiler = pytest.mark.skipif(bool(missing(TOOLS)), reason=f"needs {', '.join(missing(TOOLS))}")


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@needs_compiler
@pytest.mark.parametrize("name", UNITS)
def test_a_million_cycles(name: str, tmp_path: Path) -> None:
    unit = UNITS[name]
    small = machine("a100+fiber").replace(**unit.changes)
    module = Compiled(name, sources(), parameters_of(small, name), tmp_path)
    for seed in range(CYCLES // RUN):
        assert module.difference(unit.play(small, Random(seed), RUN)) is None, f"seed {seed}"
