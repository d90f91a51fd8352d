"""Stand-ins for a weft and its FIBER-thread: what the simulator's units look at, without an engine around them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from heddle.sim.reference.warp import Warp


@dataclass(eq=False, slots=True)
class Role:
    """The window of a weft's destinations."""

    base: int = 0


@dataclass(eq=False, slots=True)
class Thread:
    """A FIBER-thread by its slot."""

    slot: int = 0


@dataclass(eq=False, slots=True)
class Weft:
    """A weft by its place, its window and its program counter."""

    subpartition: int
    role: Role = field(default_factory=Role)
    cta: Thread = field(default_factory=Thread)
    pc: int = 0
    index: int = 0

    def as_warp(self) -> Warp:
        """Return it as what the simulator's units take; they use no more than is here."""
        return cast(Warp, self)
