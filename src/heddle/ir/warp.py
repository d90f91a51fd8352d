"""The warp program: what every front-end produces and what the simulator runs.

It is plain data: instruction rows with registers and control fields, the roles that execute them, barriers,
memory streams, work items, and for each instruction the source line and the data effect that it stands for.
The simulator knows nothing about where a program came from. Text form: `heddle.ir.warp_text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from heddle.ir.warp_fiber import Bind, Bit, FiberNote

RZ = 255  # register 255 reads as zero and is never allocated
SCOREBOARDS = 6  # dependence counters SB0-SB5 a warp
LOOP_LEVELS = 4  # nested loop counters a warp


@dataclass(frozen=True, slots=True)
class Register:
    """An aligned group of `count` vector registers of a warp from `index` on; `reuse` sets the operand cache bit.

    `place` makes the index absolute (FIBER): a register of subpartition 0..3, or of the weft's own (`warp_fiber.OWN`);
    with `warp_fiber.TENSOR` it is a group of 32 columns of tensor memory.
    """

    index: int
    count: int = 1
    reuse: bool = False
    place: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The control field of an instruction, as the compiler sets it (facts: Huerta et al., arXiv 2503.20481).

    `stall` cycles before the next instruction of the warp may issue (1..15); `wait` is the set of dependence
    counters that must be zero; `write_barrier` is released at write-back, `read_barrier` at operand read.
    """

    stall: int = 1
    wait: frozenset[int] = frozenset()
    write_barrier: int | None = None
    read_barrier: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierRef:
    """One of the mbarriers `name`: element (stage(ring) + offset) modulo the ring's depth; without a ring `offset`.

    `flip` inverts the parity that a wait asks for (a producer's first pass over empty slots). `cta` says whose
    barrier: own, the cluster leader's (rank 0), that of every CTA in the cluster (an arrive then signals all), or the
    peer's, the other CTA of the pair of ranks 2i and 2i + 1.
    """

    name: str
    ring: str | None = None
    offset: int = 0
    flip: bool = False
    cta: Literal["own", "leader", "all", "peer"] = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRef:
    """One access of a memory stream: block = item[stream.base] + (loop counter + offset) * stream.step.

    `part` of `parts`: the access covers 1/parts of the block (one LDGSTS of a warp, one half of a multicast pair).
    If `part_by_rank`, the warp's rank in its role times `rank_stride` is added to `part`. If the stream is multicast,
    the CTA's rank in its cluster times parts / multicast is added to `part`.
    """

    name: str
    offset: int = 0
    part: int = 0
    parts: int = 1
    part_by_rank: bool = False
    rank_stride: int = 1


@dataclass(frozen=True, slots=True)
class Count:
    """A loop count: an immediate, or attribute `attribute` of the current work item, plus `offset` (at least 0)."""

    value: int = 0
    attribute: str | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One warp instruction. Which optional fields an opcode needs is in `heddle.ir.opcodes.OPCODES`.

    A matrix instruction's `dst` is its accumulator, read and written; it is not repeated in `src`. `by`: who acts;
    "group": one warp of each four (rank % 4 == 0), "role": rank 0 of the role. The other warps of the role issue the
    instruction predicated off: it costs an issue slot and its control field holds, it waits for no unit and has no
    effect.
    """

    op: str
    dst: Register | None = None
    src: tuple[Register, ...] = ()
    control: Control = Control()
    shape: tuple[int, int, int] | None = None  # m, n, k of a matrix instruction
    form: str = ""  # operand supply of a matrix instruction: rr, ss, rs, ts
    dtype: str = ""  # type of matrix operands: fp16, bf16, fp8_e4m3, tf32
    ctas: int = 1  # 2: a tcgen05 instruction of a CTA pair, or a cluster-multicast copy to that many CTAs
    bytes: int = 0  # of one warp's access (LDS, LDSM, LDG, ...), of a whole bulk copy (UTMALDG, UBLKCP.S.S), expect_tx
    conflict_ways: int = 1  # shared-memory bank conflict degree (1: none)
    stream: StreamRef | None = None
    barrier: BarrierRef | None = None
    barrier_id: int = 0  # named barrier (BAR.*)
    warps: int = 0  # warps that meet at a named barrier
    pending: int = 0  # groups that may stay outstanding at a wait (DEPBAR.LE, WARPGROUP.DEPBAR, UTMASTG wait)
    semaphore: str | None = None  # attribute of the item that holds a global semaphore's index
    target: int | None = None  # program counter of a branch
    level: int = 0  # loop level of LOOP, 0..LOOP_LEVELS-1
    count: Count | None = None
    attribute: str | None = None  # SKIP jumps when this item attribute is zero
    by: Literal["warp", "group", "role"] = "warp"
    bind: Bind | None = None  # of DEPBAR.BIND: what it binds to the next instruction
    bit: Bit = ""  # of DEPBAR.BIT: which bit of the registers src[0]
    set_bit: bool = False  # of DEPBAR.BIT: set or clear
    fibers: int = 0  # SETFIBER: fibers from now on
    all_scope: bool = False  # SETFIBER: drain the pool, set its empty bits and clear its full bits
    group: bool = False  # WMMA: with the instructions of the three neighbouring wefts, B is fetched once
    advance: tuple[str, ...] = ()  # rings that this warp advances when the instruction issues
    effect: int | None = None  # index into WarpProgram.effects
    source: int = 0  # index into WarpProgram.sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Warps [first_warp, first_warp + warps) of the CTA start at `entry`; `leader_only`: on rank 0 of a cluster.

    `base` (FIBER) is added to register indices without a place: the window that the wefts write, 0 or 256.
    """

    name: str
    first_warp: int
    warps: int
    entry: int
    registers_per_thread: int
    leader_only: bool = False
    base: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """A ring of `depth` stages. Every warp has its own (stage, phase) for each ring, starting at (0, 0)."""

    name: str
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """A ring of `count` mbarriers in shared memory, each complete after `arrivals` arrivals and all expected bytes."""

    name: str
    count: int
    arrivals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A global tensor; `role` "input" is cold or warm in L2 before the kernel, "output" and "workspace" are written."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Literal["input", "output", "workspace"] = "input"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A sequence of accesses to blocks of a tensor.

    The tensor is cut into `blocks` blocks of `block_bytes` (one box of a bulk copy, or one tile of a cooperative
    copy); `base` names the work item attribute with the first block; `level` is the loop whose counter advances it,
    by `step` blocks an iteration. Blocks of different streams of one tensor are the same memory only if the streams
    have equal `blocks` and `block_bytes`. `multicast`: the CTAs of the cluster each load 1/multicast of the block.
    `cta_step` blocks are added for each rank of the CTA in its cluster.
    """

    name: str
    tensor: str
    direction: Literal["load", "store", "reduce"]
    blocks: int
    block_bytes: int
    base: str
    level: int = 0
    step: int = 1
    multicast: int = 1
    cta_step: int = 0


FOLLOWING = "next"
"""How the names of attributes begin that tell an item of the one that follows it on its cluster."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """Work items, one row each, with named integer attributes, and how CTAs (or clusters) get them.

    `static`: persistent; cluster c runs items c, c + grid, ...; `launch`: one cluster an item, new clusters start as
    old ones end; `dynamic`: persistent; the next item goes to the cluster that asks first. `grid` = clusters launched.
    Attributes whose names begin with `FOLLOWING` say of the cluster's next item what it is; 0 where none follows.
    """

    attributes: tuple[str, ...]
    items: NDArray[np.int64]  # [items, attributes]
    schedule: Literal["static", "launch", "dynamic"]
    grid: int

    def _key(self) -> tuple[object, ...]:
        return (self.attributes, self.items.shape, self.items.tobytes(), self.schedule, self.grid)

    def __eq__(self, other: object) -> bool:
        """Compare by value; the generated method would compare arrays element by element."""
        return isinstance(other, Work) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What part of an object an effect touches; the object's shape is in WarpProgram.objects.

    The region is rows x cols at (row + rank_row * i, col + rank_col * j) where i = (rank // divisor) // rank_cols and j
    = (rank // divisor) % rank_cols for the warp's rank in its role (exchanged if `rank_swap`). `ring`: the stage
    dimension is indexed by the warp's stage of that ring plus `stage_offset`, modulo its depth. Global objects add item
    attributes (in elements) and a loop counter: row += item[row_attribute] + (counter[level] + counter_offset) *
    row_step, col likewise; of three dimensions the first is item[plane_attribute]. `cta_row`, `cta_col` are added for
    each rank of the CTA in its cluster. What lies outside a global tensor reads as zero and is not written.
    """

    object: str
    row: int = 0
    col: int = 0
    rows: int
    cols: int
    rank_row: int = 0
    rank_col: int = 0
    rank_cols: int = 1
    rank_swap: bool = False
    divisor: int = 1
    ring: str | None = None
    stage_offset: int = 0
    row_attribute: str | None = None
    col_attribute: str | None = None
    level: int = 0
    counter_offset: int = 0
    row_step: int = 0
    col_step: int = 0
    cta_row: int = 0
    cta_col: int = 0
    plane_attribute: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The data meaning of an instruction, executed by `heddle.interp` in the engine's order.

    Values are converted to the written object's dtype. Register tiles are objects that hold the tile of a whole role,
    one copy a CTA (scope "cta"); an access selects the part of one warp by its rank. Matrix fragments have scope
    "warp". Kinds: copy: writes[0] = reads[0] at issue (ldmatrix, stores to shared, tensor-memory loads, cast);
    copy_async: the same, but the write lands when the engine says (bulk copy: at R in every CTA if params["ctas"] > 1,
    in the peer for UBLKCP.S.S; cp.async: at R); store, reduce: global = or += reads[0] when the engine says that the
    source is read (with two writes, its upper and its lower half; registers are taken at issue: what a store reads
    later is packed copies of them, which its read barrier guards); mma: writes[0]
    (+)= reads[0] @ reads[1].T, both [rows, k] (params["transposed"]: reads[1] is [k, cols]; "a_transposed": reads[0] is
    [k, rows]); operands are read between
    start and completion, and with a third read the product is added to reads[2]. params of mma: "accumulate": 1, 0
    (overwrite) or 2 (overwrite if counter[params["level"]] == 0); "ctas" 2: reads[1] is stacked from the CTAs of the
    pair, each CTA accumulating its own rows; "folded" 1: the right half of the columns lies
    below the left one. A warp-group instruction (HGMMA) carries the region of its own warp's 16
    rows. fill: writes[0] = params["value"]. elementwise:
    writes[0] = params["function"] of reads and params["scalar0"], ...; functions are those of `tile.Elementwise`; a
    read of one column is broadcast. gate: of each 16 columns of reads[0] silu(first 8) * last 8. dequantize: the
    rule of `tile.Dequantize` of reads: weights, scale, zero. look_up: that of `tile.LookUp` of reads: codes, scale,
    codebook, with params["books"]. look_up_rows: that of `tile.LookUpRows` of reads: codes, codebook. dot:
    writes[0] += what `tile.Dot` says of reads: a, b. row_reduce:
    writes[0] (one column) = params["function"] ("max" or "sum") over the columns of reads[0], and over its own old
    value if params["accumulate"] is 1. mask: elements of writes[0] outside a triangle or beyond a limit become
    params["value"]; the other params are the fields of `tile.Mask` ("row_attribute", "row_level", "row_step",
    "row_constant", and so for "col").
    Where only some fibers run, params say which rows take part: row r of a band belongs to fiber 32 * rank +
    row_lanes * (r mod (32 / row_lanes)) and the row_lanes - 1 after it, and takes part if that is below "fibers" +
    item["fibers_attribute"], or, with "fibers_others" 1, if it is not.
    """

    kind: str
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    params: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataObject:
    """An array that effects touch: shared or tensor memory [stages, rows, cols], registers [rows, cols], or global.

    `scope`: warp, subpartition, group (four warps), cta, cluster or global: how many copies exist. `overlays`: an
    object in tensor or shared memory whose 32-bit columns, stage by stage, this one uses again from column
    `overlay_col` on.
    """

    name: str
    space: Literal["shared", "register", "tensor_memory", "global"]
    shape: tuple[int, ...]
    dtype: str
    scope: Literal["warp", "subpartition", "group", "cta", "cluster", "global"]
    overlays: str | None = None
    overlay_col: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an instruction came from: the user's line and the tile operation."""

    file: str
    line: int
    operation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpProgram:
    """A complete kernel for the simulator. Sizes: shared memory in bytes a CTA; tensor memory in columns a CTA."""

    name: str
    architecture: str
    instructions: tuple[Instruction, ...]
    roles: tuple[Role, ...]
    rings: tuple[Ring, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    streams: tuple[Stream, ...] = ()
    work: Work
    sources: tuple[Source, ...] = ()
    effects: tuple[Effect, ...] = ()
    objects: tuple[DataObject, ...] = ()
    shared_memory_bytes: int = 0
    tensor_memory_columns: int = 0
    cluster_size: int = 1
    flops: int = 0  # useful FLOPs of the whole kernel, padding and masked work not counted
    mode: str = "simt"  # or cuda-native, fiber
    fiber: FiberNote | None = None
    params: Mapping[str, int | float | str] = field(default_factory=dict)

    @property
    def warps_per_cta(self) -> int:
        """Warps of one CTA, over all roles."""
        return sum(role.warps for role in self.roles)
