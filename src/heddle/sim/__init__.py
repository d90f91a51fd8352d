"""The SM engine: `simulate` runs a warp program on a machine, `Sim` step by step. See docs/reference/engine.md."""

from heddle.sim.engine import simulate
from heddle.sim.result import EVENT, EventKind, SimResult, Stall
from heddle.sim.session import Sim, Snapshot

__all__ = ["EVENT", "EventKind", "Sim", "SimResult", "Snapshot", "Stall", "simulate"]
