"""The tile program: what a kernel written in `heddle.lang` becomes before it is lowered to warps.

A tree of operations (`tile_ops`, `tile_moves`, `tile_math`, `tile_sync`) on tiles in global, shared, register and
tensor memory (`tile_refs`), executed by roles (groups of warps). Loops stay loops. Every operation knows the line of
the user's kernel. Text form: `heddle.ir.tile_text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from heddle.errors import SourceLocation
from heddle.ir.tile_math import (
    CODE_COLUMNS,
    CODE_WEIGHTS,
    GATE_COLUMNS,
    Dequantize,
    Dot,
    Elementwise,
    Fill,
    Gate,
    LookUp,
    LookUpRows,
    Mask,
    Mma,
    MmaApart,
    MmaCommit,
    MmaWait,
    RowReduce,
    is_folded,
)
from heddle.ir.tile_moves import (
    CopyThrough,
    CopyToPeer,
    CpAsync,
    CpAsyncCommit,
    CpAsyncWait,
    LoadGlobal,
    LoadShared,
    LoadTensorMemory,
    StoreGlobal,
    StoreShared,
    StoreTensorMemory,
    TmaAddFolded,
    TmaLoad,
    TmaStore,
    TmaStoreWait,
    TransposeShared,
)
from heddle.ir.tile_ops import Fibers, For, ForEachItem, Op, OtherFibers, When
from heddle.ir.tile_refs import (
    BarrierUse,
    GlobalRef,
    Mbarrier,
    OwnRef,
    PoolRef,
    Position,
    RegisterTile,
    RingDecl,
    SharedRef,
    SharedTile,
    TensorMemoryTile,
    TmemRef,
)
from heddle.ir.tile_sync import (
    Advance,
    Arrive,
    Await,
    ClusterSync,
    Expect,
    Fence,
    SetBusyBit,
    SetFiberNum,
    Signal,
    Sync,
    TakeToken,
    Wait,
)
from heddle.ir.warp import Tensor, Work

__all__ = [
    "CODE_COLUMNS",
    "CODE_WEIGHTS",
    "GATE_COLUMNS",
    "Advance",
    "Arrive",
    "Await",
    "BarrierUse",
    "ClusterSync",
    "CopyThrough",
    "CopyToPeer",
    "CpAsync",
    "CpAsyncCommit",
    "CpAsyncWait",
    "Dequantize",
    "Dot",
    "Elementwise",
    "Expect",
    "Fence",
    "Fibers",
    "Fill",
    "For",
    "ForEachItem",
    "Gate",
    "GlobalRef",
    "LoadGlobal",
    "LoadShared",
    "LoadTensorMemory",
    "LookUp",
    "LookUpRows",
    "Mask",
    "Mbarrier",
    "Mma",
    "MmaApart",
    "MmaCommit",
    "MmaWait",
    "Op",
    "OtherFibers",
    "OwnRef",
    "PoolRef",
    "Position",
    "RegisterTile",
    "RingDecl",
    "RoleBody",
    "RowReduce",
    "SetBusyBit",
    "SetFiberNum",
    "SharedRef",
    "SharedTile",
    "Signal",
    "StoreGlobal",
    "StoreShared",
    "StoreTensorMemory",
    "Sync",
    "TakeToken",
    "TensorMemoryTile",
    "TileProgram",
    "TmaAddFolded",
    "TmaLoad",
    "TmaStore",
    "TmaStoreWait",
    "TmemRef",
    "TransposeShared",
    "Wait",
    "When",
    "is_folded",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleBody:
    """A role: `warps` warps with `registers` a thread (a budget; allocation beyond it is a spill error) and their code.

    Warps are numbered in the order of the roles; a role of warp groups must begin at a multiple of four. `window` (mode
    fiber): the half of a subpartition's registers that the role's wefts write, 0 or 1; `registers` are then those of
    its own tiles and temporaries. `pace`: cycles from one instruction of a warp to its next, at least.
    """

    name: str
    warps: int
    registers: int
    body: tuple[Op, ...]
    leader_only: bool = False
    window: int = 0
    pace: int = 1
    where: SourceLocation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TileProgram:
    """A kernel as tiles; `setmaxnreg` is implied where roles' budgets differ on sm_90 and later.

    `pool` (mode fiber): tiles in vector registers that every weft can read; each stage is a tile of its own.
    """

    name: str
    architecture: str
    tensors: tuple[Tensor, ...]
    shared: tuple[SharedTile, ...]
    registers: tuple[RegisterTile, ...]
    pool: tuple[RegisterTile, ...] = ()
    tensor_memory: tuple[TensorMemoryTile, ...] = ()
    barriers: tuple[Mbarrier, ...] = ()
    rings: tuple[RingDecl, ...] = ()
    roles: tuple[RoleBody, ...] = ()
    work: Work
    cluster_size: int = 1
    flops: int = 0
    mode: str = "simt"
    params: Mapping[str, int | float | str] = field(default_factory=dict)
