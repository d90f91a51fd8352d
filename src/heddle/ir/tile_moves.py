"""The operations of a tile program that move tiles between memories and registers."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.ir.tile_ops import Op
from heddle.ir.tile_refs import BarrierUse, GlobalRef, SharedRef, TmemRef


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaLoad(Op):
    """Bulk copy global -> shared, signalling `barrier`.

    `multicast` CTAs of the cluster each load a part and all receive the whole.
    """

    dst: SharedRef
    src: GlobalRef
    barrier: BarrierUse
    multicast: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaStore(Op):
    """Bulk copy (or reduce-add) shared -> global, one commit group, issued by the first warp of the role."""

    dst: GlobalRef
    src: SharedRef
    reduce: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaAddFolded(Op):
    """Bulk reduce-add of some columns of a folded accumulator to global memory, one commit group.

    `dst` [m, n] is what the CTA accumulates; `src` [2m, w] has w columns of its left half above w of its right half,
    the `part`-th ones of n / 2w. The global memory is kept in the same order, so that the copy is one piece of it.
    """

    dst: GlobalRef
    src: SharedRef
    part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyToPeer(Op):
    """Bulk copy from shared memory to that of the other CTA of a pair, signalling `barrier` there."""

    dst: SharedRef
    src: SharedRef
    barrier: BarrierUse


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaStoreWait(Op):
    """Wait until at most `pending` bulk store groups still read shared memory."""

    pending: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CpAsync(Op):
    """Cooperative asynchronous copy global -> shared by all warps of the role (sm_80 cp.async, 16 bytes a lane).

    `own_rows` (mode fiber on sm_80): a weft copies the rows that are its own of a box divided among the role's wefts;
    with full and empty bits every copy is divided so.
    """

    dst: SharedRef
    src: GlobalRef
    bytes_per_lane: int = 16
    own_rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CpAsyncCommit(Op):
    """Close the group of asynchronous copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpAsyncWait(Op):
    """Wait until at most `pending` groups of asynchronous copies are outstanding."""

    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyThrough(Op):
    """Global -> shared through registers, by all warps of the role: plain loads and stores, `copies` side by side.

    `dst` is where the first copy lies; each of the others has its columns behind those of the one before.
    """

    dst: SharedRef
    src: GlobalRef
    copies: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGlobal(Op):
    """Global -> register tile, by plain loads."""

    dst: str
    src: GlobalRef


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGlobal(Op):
    """Register tile -> global, by plain stores or atomic adds; from column `src_col` of the register tile on.

    `transposed`: dst = src.T, of matrix fragments with 32-bit elements, each of which has an address of its own, or of
    rows of lanes (sm_100) as 16-bit elements, a column at a time, or of a column that is spread by rows.
    """

    dst: GlobalRef
    src: str
    reduce: bool = False
    src_col: int = 0
    transposed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreShared(Op):
    """Register tile (converted to the shared tile's dtype) -> shared, by stmatrix (sm_90 on) or stores.

    The part that is stored has the size of `dst` and begins at column `src_col` of the register tile. `by_element`:
    each 16-bit element by a store of its own, with an address of its own. `transposed`: dst = src.T; 16-bit elements
    (stmatrix.trans). `thread_order`: 32-bit elements side by side as the threads hold them, which is what a bulk copy
    into memory of the same order takes; the order itself is not modelled.
    """

    dst: SharedRef
    src: str
    src_col: int = 0
    by_element: bool = False
    transposed: bool = False
    thread_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShared(Op):
    """Shared -> register tile, by plain loads.

    `transposed` (mode fiber on sm_100): dst = src.T, 16-bit elements one by one, so that a lane has a column of src.
    `each` (mode fiber on sm_80): each of four wefts loads all of src into its quarter of the rows of dst.
    """

    dst: str
    src: SharedRef
    transposed: bool = False
    each: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TransposeShared(Op):
    """dst = src.T, both shared and of one 8-bit type, by all warps of the role (ldmatrix.trans, stmatrix)."""

    dst: SharedRef
    src: SharedRef


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTensorMemory(Op):
    """Tensor memory -> register tile, and wait for it."""

    dst: str
    src: TmemRef


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTensorMemory(Op):
    """Register tile (of the tensor-memory tile's dtype) -> tensor memory, and with `wait`, wait for all stores so far.

    The part that is stored has the size of `dst` and begins at column `src_col` of the register tile.
    """

    dst: TmemRef
    src: str
    src_col: int = 0
    wait: bool = True
