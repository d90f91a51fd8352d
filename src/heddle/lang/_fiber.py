"""FIBER-native kernels: pool tensors, the number of fibers and who they are, full and empty (docs/decisions/0006)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heddle.errors import UserError, unknown_name
from heddle.ir import tile
from heddle.ir.warp_fiber import FIBERS, SUBPARTITIONS
from heddle.lang._compute import ComputeOps
from heddle.lang._handles import RegisterHandle, TensorMemoryBox
from heddle.lang._structure import IDLE
from heddle.lang._where import caller


@dataclass(frozen=True)
class PoolHandle:
    """A pool tensor: `s[i]` is its stage i, counted round the ring of stages; i is known when the kernel is written."""

    stages: tuple[RegisterHandle, ...]

    def __getitem__(self, stage: int) -> RegisterHandle:
        if not isinstance(stage, int):
            raise UserError(
                "a stage of a pool tensor is a Python integer: registers have no index at run time",
                where=caller(),
                hint="unroll the loop over stages: for s in range(stages): ...",
            )
        return self.stages[stage % len(self.stages)]


@dataclass(frozen=True)
class Token:
    """One register of the pool, without a value: what its giver has done comes before what its taker does."""

    builder: FiberOps
    register: RegisterHandle

    def give(self) -> None:
        """Let the taker go on; waits until it has taken the token of last time."""
        self.builder._emit(tile.Fill(dst=self.register.tile.name, where=caller()))
        self.builder._emit(tile.SetBusyBit(tile=self.register.tile.name, bit="full", where=caller()))

    def take(self) -> None:
        """Wait until the token has been given."""
        self.builder._emit(tile.TakeToken(tile=self.register.tile.name, where=caller()))


class FiberOps(ComputeOps):
    """The operations of FIBER-native kernels."""

    def set_fiber_num(self, **wefts: int) -> None:
        """Spawn the wefts of each named role, in this order: `k.set_fiber_num(load=1, multiply=4, store=4)`.

        Call it once, at entry, before the roles. Weft w runs on subpartition w modulo four. The first role has one
        weft, the one that a FIBER-thread starts with; others have up to four, and roles of four begin at a multiple of
        four: wefts that this leaves out end at once.
        """
        where = caller()
        if self._wefts or self._roles:
            raise UserError("set_fiber_num stands once, before the first role", where=where)
        if not wefts or min(wefts.values()) < 1:
            raise UserError("set_fiber_num needs roles with 1 or more wefts each", where=where)
        for name, count in wefts.items():
            begin = sum(self._wefts.values())
            if count == SUBPARTITIONS and begin % SUBPARTITIONS:
                self._wefts[f"{IDLE}{begin}"] = SUBPARTITIONS - begin % SUBPARTITIONS
            self._wefts[name] = count
        self._first_op = tile.SetFiberNum(fibers=FIBERS * sum(self._wefts.values()), where=where)

    def set_busy_bit(self, tensor: RegisterHandle | TensorMemoryBox, bit: Literal["full", "empty"]) -> None:
        """State what a pool tensor's registers are from here on; this is bound to the accesses before this line.

        Tensor memory (sm_100) has a pair of bits for each 32 columns: a tile, or `.columns(...)` of it.
        "full": this role has written the datum (its last writes hold it). "empty": this role has read it for the last
        time (its last reads give it back).
        """
        where = caller()
        if bit not in ("full", "empty"):
            raise unknown_name("busy bit", bit, ("full", "empty"), where)
        if isinstance(tensor, TensorMemoryBox):
            self._emit(tile.SetBusyBit(tile=tensor.ref, bit=bit, where=where))
        elif isinstance(tensor, RegisterHandle):
            self._emit(tile.SetBusyBit(tile=tensor.tile.name, bit=bit, where=where))
        else:
            raise UserError(
                "set_busy_bit takes one stage of a pool tensor, as in acc[0], or columns of tensor memory", where=where
            )
