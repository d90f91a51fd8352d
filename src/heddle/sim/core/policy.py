"""The place of a user's scheduler policy; `heddle.sim.scheduler` loads a copy of the core with another function here."""

from __future__ import annotations

from heddle.sim.core.jit import compiled, ctz

@compiled
def user_choose(ready: int, last: int, subpartition: int, t: int) -> int:
    """Pick the lowest ready warp; replaced by the user's function."""
    return ctz(ready)
