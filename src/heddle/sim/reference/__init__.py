"""The reference engine: docs/reference/engine.md in plain Python, cycle by cycle, to check the fast engine against."""

from heddle.sim.reference.engine import simulate_reference

__all__ = ["simulate_reference"]
