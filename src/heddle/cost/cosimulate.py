"""Co-simulation: a module of Verilog and the simulator's unit get the same input and must give the same answers."""

from __future__ import annotations

from random import Random

from heddle.cost import icarus
from heddle.cost.trace import Unit
from heddle.cost.verilog import parameters_of, sources
from heddle.machine.spec import Machine


def cosimulate(unit: Unit, machine: Machine, cycles: int, seed: int = 0) -> str | None:
    """Simulate so many random cycles; return the first difference, None if there is none."""
    small = machine.replace(**unit.changes)
    trace = unit.play(small, Random(seed), cycles)
    return icarus.difference(unit.name, sources(), parameters_of(small, unit.name), trace)
