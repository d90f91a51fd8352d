"""The tile program: what a kernel written in `heddle.lang` becomes before it is lowered to warps.

A tree of operations on tiles in global, shared, register and tensor memory, executed by roles (groups of warps). Loops
stay loops. Every operation knows the line of the user's kernel. Text form: `heddle.ir.tile_text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from heddle.errors import SourceLocation
from heddle.ir.warp import Count, Tensor, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTile:
    """`stages` x rows x cols of shared memory; `swizzle_bytes` 128: conflict-free for matrix loads, 0: plain rows."""

    name: str
    rows: int
    cols: int
    dtype: str
    stages: int = 1
    swizzle_bytes: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTile:
    """rows x cols spread over the warps of a role as matrix fragments; `warp_grid` = warps along (rows, cols)."""

    name: str
    rows: int
    cols: int
    dtype: str
    warp_grid: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMemoryTile:
    """`stages` x rows x cols in tensor memory (sm_100); 32-bit columns, 128 lanes a CTA."""

    name: str
    rows: int
    cols: int
    dtype: str
    stages: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mbarrier:
    """`count` mbarriers that complete after `arrivals` arrivals and all expected bytes."""

    name: str
    count: int
    arrivals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RingDecl:
    """A ring of `depth` stages; every warp keeps its own (stage, phase)."""

    name: str
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalRef:
    """A rows x cols box of a global tensor.

    Its corner is (item[row] + counter * row_step, item[col] + counter * col_step), where `row`, `col` name work item
    attributes in elements (None: 0) and `loop` names the loop whose counter (+ `ahead`) moves the box. `row_offset`,
    `col_offset` elements are added, and `cta_row`, `cta_col` for each rank of the CTA in its cluster. What lies outside
    the tensor reads as zero and is not written.
    """

    tensor: str
    rows: int
    cols: int
    row: str | None = None
    col: str | None = None
    loop: str | None = None
    ahead: int = 0
    row_step: int = 0
    col_step: int = 0
    cta_row: int = 0
    cta_col: int = 0
    row_offset: int = 0
    col_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRef:
    """A box of a shared tile at the stage that `ring` points to (+ `ahead` stages), or at stage 0 without a ring."""

    tile: str
    rows: int
    cols: int
    ring: str | None = None
    ahead: int = 0
    row: int = 0
    col: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TmemRef:
    """A box of a tensor-memory tile at the stage that `ring` points to."""

    tile: str
    rows: int
    cols: int
    ring: str | None = None
    row: int = 0
    col: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierUse:
    """Element of an mbarrier ring: stage of `ring` + `ahead`. `flip`: a producer's wait. `cta`: own, leader or all."""

    name: str
    ring: str | None = None
    ahead: int = 0
    flip: bool = False
    cta: Literal["own", "leader", "all"] = "own"


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
class TmaStoreWait(Op):
    """Wait until at most `pending` bulk store groups still read shared memory."""

    pending: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CpAsync(Op):
    """Cooperative asynchronous copy global -> shared by all warps of the role (sm_80 cp.async, 16 bytes a lane)."""

    dst: SharedRef
    src: GlobalRef
    bytes_per_lane: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CpAsyncCommit(Op):
    """Close the group of asynchronous copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpAsyncWait(Op):
    """Wait until at most `pending` groups of asynchronous copies are outstanding."""

    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGlobal(Op):
    """Global -> register tile, by plain loads."""

    dst: str
    src: GlobalRef


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGlobal(Op):
    """Register tile -> global, by plain stores or atomic adds; from column `src_col` of the register tile on."""

    dst: GlobalRef
    src: str
    reduce: bool = False
    src_col: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreShared(Op):
    """Register tile (converted to the shared tile's dtype) -> shared, by stmatrix (sm_90 on) or stores.

    The part that is stored has the size of `dst` and begins at column `src_col` of the register tile.
    """

    dst: SharedRef
    src: str
    src_col: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShared(Op):
    """Shared -> register tile, by plain loads."""

    dst: str
    src: SharedRef


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTensorMemory(Op):
    """Tensor memory -> register tile, and wait for it."""

    dst: str
    src: TmemRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill(Op):
    """Set all elements of a register tile."""

    dst: str
    value: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise(Op):
    """dst = function(sources) element by element on register tiles of equal layout: add, mul, sub, max, exp2, cast, ...

    A source of one column is broadcast over the columns. `source_cols`, if given, is the first column that each source
    takes part with; the part has the size of `dst`.
    """

    function: str
    dst: str
    sources: tuple[str, ...]
    scalars: tuple[float, ...] = ()
    source_cols: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReduce(Op):
    """dst[row] = max or sum over the columns of src, and over dst's old value if `accumulate`; dst has one column."""

    function: str
    dst: str
    src: str
    accumulate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mma(Op):
    """acc += a @ b.T with a [m, k] and b [n, k].

    sm_80: a, b shared, fragments loaded by ldmatrix, mma.sync. sm_90: one wgmma chain a warp group, a shared or a
    register tile. sm_100: tcgen05.mma issued by one warp, acc in tensor memory; `ctas` = 2 for a CTA pair. `accumulate`
    False: the first k-step overwrites acc; "first_iteration": overwrites when the counter of `loop` is 0.
    """

    acc: str | TmemRef
    a: SharedRef | str
    b: SharedRef
    accumulate: bool | Literal["first_iteration"] = True
    loop: str | None = None
    ctas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaCommit(Op):
    """Close a group of matrix instructions; with `barrier`, tcgen05.commit to it."""

    barrier: BarrierUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaWait(Op):
    """wgmma: wait until at most `pending` groups are outstanding."""

    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Op):
    """Wait for the phase of an mbarrier."""

    barrier: BarrierUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrive(Op):
    """Arrive on an mbarrier; `by`: every warp (one lane), one warp a group, or one warp of the role."""

    barrier: BarrierUse
    by: Literal["warp", "group", "role"] = "warp"


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
    """Barrier over all warps of the cluster."""


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
class RoleBody:
    """A role: `warps` warps with `registers` a thread (a budget; allocation beyond it is a spill error) and their code.

    Warps are numbered in the order of the roles; a role of warp groups must begin at a multiple of four.
    """

    name: str
    warps: int
    registers: int
    body: tuple[Op, ...]
    leader_only: bool = False
    where: SourceLocation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TileProgram:
    """A kernel as tiles; `setmaxnreg` is implied where roles' budgets differ on sm_90 and later."""

    name: str
    architecture: str
    tensors: tuple[Tensor, ...]
    shared: tuple[SharedTile, ...]
    registers: tuple[RegisterTile, ...]
    tensor_memory: tuple[TensorMemoryTile, ...] = ()
    barriers: tuple[Mbarrier, ...] = ()
    rings: tuple[RingDecl, ...] = ()
    roles: tuple[RoleBody, ...] = ()
    work: Work
    cluster_size: int = 1
    flops: int = 0
    mode: str = "simt"
    params: Mapping[str, int | float | str] = field(default_factory=dict)
