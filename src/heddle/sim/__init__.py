"""The SM engine: `simulate` runs a warp program on a machine, `Sim` step by step. See docs/reference/engine.md.

The engine is loaded when it is first used: who only reads results does not wait for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from heddle.sim.result import EVENT, EventKind, SimResult, Stall

if TYPE_CHECKING:
    from heddle.sim.engine import simulate
    from heddle.sim.launch_mode import check_group, default_mode, group_cost
    from heddle.sim.session import Sim, Snapshot

__all__ = [
    "EVENT", "EventKind", "Sim", "SimResult", "Snapshot", "Stall", "check_group", "default_mode",
    "group_cost", "simulate",
]  # fmt: skip

_HOME = {
    "simulate": "heddle.sim.engine",
    "check_group": "heddle.sim.launch_mode",
    "default_mode": "heddle.sim.launch_mode",
    "group_cost": "heddle.sim.launch_mode",
    "Sim": "heddle.sim.session",
    "Snapshot": "heddle.sim.session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'heddle.sim' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOME[name]), name)
