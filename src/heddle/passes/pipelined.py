"""Products of sm_80 whose first fragments are loaded ahead: what the passes that rotate loops make of `Mma`."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.ir.tile import Mma, Op


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFragments(Op):
    """Load the fragments of the first k-step of `mma` at the current stage."""

    mma: Mma


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinedMma(Op):
    """`mma`, its first fragments being there; `between` runs before its last k-step, where the next ones are loaded."""

    mma: Mma
    between: tuple[Op, ...]
    prefetch: bool
