"""The operations of a tile program that order warps and wefts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heddle.ir.tile_ops import Op
from heddle.ir.tile_refs import BarrierUse, TmemRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Op):
    """Wait for the phase of an mbarrier."""

    barrier: BarrierUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrive(Op):
    """Arrive on an mbarrier; `by`: every warp (one lane), one warp a group, or one warp of the role.

    `read` (mode fiber): a register tile; of the role's products only those with this first operand have to be read.
    `after_reads` (sm_90, hypothetical): the matrix unit arrives when the group's products so far have been read.
    """

    barrier: BarrierUse
    by: Literal["warp", "group", "role"] = "warp"
    read: str | None = None
    after_reads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect(Op):
    """Arrive and expect `bytes` from bulk copies."""

    barrier: BarrierUse
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync(Op):
    """Named barrier `id` over the `warps` that execute it (0: all warps of the CTA); `wait` False only arrives."""

    id: int = 0
    warps: int = 0
    wait: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSync(Op):
    """Barrier over `warps` warps of each CTA of the cluster (0: all) that execute it."""

    warps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance(Op):
    """Step the rings of the executing warps."""

    rings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence(Op):
    """Make shared stores visible to the asynchronous proxy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal(Op):
    """Add one to the global semaphore whose index is item attribute `semaphore`, after the CTA's earlier stores."""

    semaphore: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Await(Op):
    """Wait until the global semaphore has reached `value` (an item attribute or a number)."""

    semaphore: str
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFiberNum(Op):
    """From here on `fibers` fibers run, each weft in the role that has its number; the pool becomes empty."""

    fibers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBusyBit(Op):
    """State a datum full (its last writes stand before this line) or empty (its last reads stand before this line).

    The datum is that of a pool tensor, or whole groups of 32 columns of a tile in tensor memory.

    Full: the producer may not write it again before the consumer has given it back. Empty: the consumer gives it back,
    and may not read it again before the producer has written it.
    """

    tile: str | TmemRef
    bit: Literal["full", "empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeToken(Op):
    """Wait for a token and give it back: what its giver has done before is done, as far as bits say so."""

    tile: str
