"""Synchronisation: rings, mbarriers, named barriers, cluster barriers, semaphores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from heddle.errors import UserError
from heddle.ir import tile
from heddle.lang._handles import RegisterHandle, RingPosition
from heddle.lang._index import Index
from heddle.lang._structure import Structure
from heddle.lang._where import caller

if TYPE_CHECKING:
    from heddle.lang._builder import Builder

Cta = Literal["own", "leader", "all", "peer"]


@dataclass(frozen=True)
class Ring(RingPosition):
    """A ring of stages; every warp keeps its own position. `ring + 2` is two stages on."""

    builder: Builder | None = None

    def __add__(self, stages: int) -> RingPosition:
        return RingPosition(self.ring, self.depth, stages)

    @property
    def previous(self) -> RingPosition:
        """The stage before this one."""
        return self + (self.depth - 1)

    def advance(self) -> None:
        """Step the executing warps to the next stage."""
        assert self.builder is not None
        self.builder.advance(self)


@dataclass(frozen=True)
class Barrier:
    """An mbarrier, or a ring of them; `full[ring]` is the one of a stage, `full[:]` a single one."""

    builder: Builder
    barrier: tile.Mbarrier

    def __getitem__(self, at: RingPosition | slice) -> tile.BarrierUse:
        return self.use(None if isinstance(at, slice) else at)

    def use(self, at: RingPosition | None, *, flip: bool = False, cta: Cta = "own") -> tile.BarrierUse:
        """Return the reference for the stage of a ring (None: a single barrier)."""
        if at is None and self.barrier.count > 1:
            raise UserError(
                f"barrier {self.barrier.name!r} has {self.barrier.count} stages: name a ring", where=caller()
            )
        if at is not None and at.depth != self.barrier.count:
            raise UserError(
                f"ring {at.ring!r} has {at.depth} stages, barrier {self.barrier.name!r} has {self.barrier.count}",
                where=caller(),
            )
        ring, ahead = (at.ring, at.ahead) if at is not None else (None, 0)
        return tile.BarrierUse(name=self.barrier.name, ring=ring, ahead=ahead, flip=flip, cta=cta)

    def wait(self, at: RingPosition | None = None, *, flip: bool = False) -> None:
        """Wait for the phase; `flip`: a producer's wait, which passes at once on empty slots of the first round."""
        self.builder._emit(tile.Wait(barrier=self.use(at, flip=flip), where=caller()))

    def arrive(
        self,
        at: RingPosition | None = None,
        *,
        by: Literal["warp", "group", "role"] = "warp",
        cta: Cta = "own",
        read: RegisterHandle | None = None,
    ) -> None:
        """Arrive once for each warp, each group of four warps, or once for the role.

        In mode fiber an arrival waits until what the role has read from shared memory so far has been read; with `read`
        it waits only for the role's products whose first operand is that tile, so that younger ones may be under way.
        """
        name = read.tile.name if read is not None else None
        self.builder._emit(tile.Arrive(barrier=self.use(at, cta=cta), by=by, read=name, where=caller()))

    def arrive_after_reads(self, at: RingPosition | None = None, *, cta: Cta = "own") -> None:
        """Let the matrix unit arrive once for each warp group when its products so far have read their operands.

        Nobody waits. This is an instruction that no H100 has: it shows what giving stages back early would gain there.
        On B200 `k.mma_commit` with a barrier does the like.
        """
        where = caller()
        if self.builder.architecture != "sm_90":
            raise UserError(f"arrive_after_reads exists on sm_90 only, not on {self.builder.architecture}", where=where)
        self.builder._emit(tile.Arrive(barrier=self.use(at, cta=cta), by="group", after_reads=True, where=where))

    def expect(self, at: RingPosition | None = None, *, bytes: int, cta: Cta = "own") -> None:
        """Arrive, and let the phase wait for `bytes` from bulk copies."""
        self.builder._emit(tile.Expect(barrier=self.use(at, cta=cta), bytes=bytes, where=caller()))


class SyncOps(Structure):
    """The synchronising operations of the builder."""

    def advance(self, *rings: RingPosition) -> None:
        """Step rings of the executing warps to the next stage."""
        self._emit(tile.Advance(rings=tuple(ring.ring for ring in rings), where=caller()))

    def sync(self, id: int = 0, *, warps: int = 0) -> None:
        """Meet at named barrier `id` and wait for all `warps` warps (default: the role's; id 0: the CTA's)."""
        if id and not warps and self._role is not None:
            warps = self._role.warps
        self._emit(tile.Sync(id=id, warps=warps, where=caller()))

    def arrive(self, id: int, *, warps: int) -> None:
        """Arrive at named barrier `id`, at which `warps` warps meet, without waiting."""
        self._emit(tile.Sync(id=id, warps=warps, wait=False, where=caller()))

    def cluster_sync(self, *, warps: int = 0) -> None:
        """Meet with `warps` warps of each CTA of the cluster (default: all its warps)."""
        self._emit(tile.ClusterSync(warps=warps, where=caller()))

    def fence(self) -> None:
        """Make earlier stores to shared memory visible to bulk copies and matrix units."""
        self._emit(tile.Fence(where=caller()))

    def signal(self, semaphore: Index) -> None:
        """Add one to the global semaphore that a work item attribute names, after earlier stores of the CTA."""
        self._emit(tile.Signal(semaphore=_attribute(semaphore, "k.signal"), where=caller()))

    def wait_semaphore(self, semaphore: Index, *, value: int) -> None:
        """Wait until the global semaphore has reached `value`."""
        self._emit(tile.Await(semaphore=_attribute(semaphore, "k.wait_semaphore"), value=value, where=caller()))


def _attribute(index: Index, what: str) -> str:
    """Return the attribute of a plain item attribute."""
    if not isinstance(index, Index) or index.attribute is None or index.loop or index.constant or index.rank_step:
        raise UserError(f"{what} needs a work item attribute, as in item.semaphore", where=caller())
    return index.attribute
