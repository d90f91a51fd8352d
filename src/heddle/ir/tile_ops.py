"""What each operation of a tile program has, and those that hold others: loops, conditions, wefts."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import SourceLocation
from heddle.ir.warp import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """Base of all tile operations; `where` is the line of the kernel that wrote it."""

    where: SourceLocation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class For(Op):
    """A loop `count` times; `name` is how references call its counter."""

    name: str
    count: Count
    body: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForEachItem(Op):
    """The loop over this CTA's (or cluster's) work items; a program with schedule `launch` runs it once."""

    body: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class When(Op):
    """Run `body` if the item attribute is not zero."""

    attribute: str
    body: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fibers(Op):
    """Run `body` with the first `count` fibers (lanes) of the role; the others wait, or run the `OtherFibers` after it.

    Fiber f is lane f % 32 of warp f // 32. It holds the rows of a register tile that the tile's layout gives to the
    lane: one of 32, or, of each 8 rows of a fragment, the one that it shares with three neighbours.
    """

    count: Count
    body: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFibers(Op):
    """Run `body` with the fibers that the `Fibers` just before leaves out."""

    body: tuple[Op, ...]
