"""The machine description: what a GPU is, as far as the simulator needs to know.

Presets are TOML files under `presets/`; every value there carries its unit, source and kind. Field names carry units.
Cycles are SM clock cycles; "per SM" unless the name says otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from heddle.errors import unknown_name
from heddle.ir.opcodes import OPCODES

Kind = Literal["specified", "measured", "derived", "fitted", "assumed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a value comes from: `source` is a public reference; a fitted value names the cases it was fitted on."""

    unit: str
    kind: Kind
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """An execution pipe. `scope` subpartition: one in each subpartition; sm: one for the SM."""

    name: str
    scope: Literal["subpartition", "sm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTiming:
    """Timing of an opcode: how long its pipe is busy (a multiple of 1/256 cycle) and when its result is there."""

    pipe: str
    initiation_cycles: float
    latency_cycles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One GPU. Load with `heddle.machine("h100")`; vary with `replace`."""

    name: str
    description: str
    architecture: Literal["sm_80", "sm_90", "sm_100"]
    # chip
    sms: int
    max_clock_mhz: float
    tensor_peak_clock_mhz: float  # clock at which the vendor's tensor peak is defined
    tdp_watts: float
    # streaming multiprocessor
    subpartitions: int
    max_warps_per_sm: int
    max_ctas_per_sm: int
    vector_registers: int  # 32 lanes x 32 bit each
    max_registers_per_thread: int
    register_allocation_unit: int  # registers a thread are rounded up to this
    shared_memory_bytes: int
    shared_memory_bytes_per_cta: int
    shared_memory_reserved_bytes_per_cta: int
    tensor_memory_columns: int
    # register file
    register_banks: int  # a subpartition
    register_reads_per_bank_per_cycle: int
    register_reuse_cache: bool
    # pipes and opcodes
    pipes: Mapping[str, Pipe]
    ops: Mapping[str, OpTiming]  # key: opcode, or opcode with a form such as "HMMA.fp16", "MUFU", "LDS"
    # shared memory and load/store
    shared_bytes_per_cycle: int
    shared_load_latency_cycles: int
    shared_conflict_cycles_per_way: int
    shared_async_slack_cycles: int  # backlog that TMA writes and matrix operand reads may build up before they wait
    shared_async_write_share: float = 1.0  # of a landing byte's time that joins the backlog
    lsu_queue_depth: int  # memory instructions a subpartition may have waiting for the load/store unit
    # tensor cores
    tensor_flops_per_cycle: int  # dense fp16 per SM
    tensor_rate_scale: Mapping[str, float]  # dtype -> multiple of the fp16 rate
    wgmma_floor_rs_cycles: int
    wgmma_tail_cycles: int  # last accumulator is written this long after the matrix unit is free
    wgmma_queue_depth: int  # wgmma instructions a warp group may have waiting
    wgmma_switch_cycles: int  # extra when the matrix unit changes warp group (0: hidden)
    tensor_port_share: float  # share of register read-port cycles that an active register-accumulator MMA takes
    tcgen05_overhead_cycles: float  # added to each initiation interval
    tcgen05_latency_cycles: Mapping[str, int]  # "ss_m128_1cta" -> latency beyond the data-path time
    tcgen05_commit_cycles: int
    tcgen05_queue_depth: int
    tensor_memory_read_bytes_per_cycle: int
    tensor_memory_write_bytes_per_cycle: int
    tensor_memory_latency_cycles: int
    # synchronisation
    named_barrier_cycles: int
    named_barrier_cycles_per_warp: int
    mbarrier_arrive_cycles: int  # arrival becomes visible
    mbarrier_wait_cycles: int  # from the phase change (or the issue, if later) until the waiting warp's next issue
    cluster_barrier_cycles: int
    cluster_remote_cycles: int  # one-way latency to another SM of the cluster
    cluster_bytes_per_cycle: float  # of bulk copies from an SM to another one of the cluster
    wgmma_arrive_cycles: int
    set_registers_cycles: int
    max_cluster_size: int
    # memory
    l1_latency_cycles: int
    l2_bytes: int
    l2_partitions: int
    l2_near_latency_cycles: int  # LDG, unloaded
    l2_far_latency_cycles: int
    l2_bytes_per_cycle_per_sm: float  # chip rate divided by SMs
    l2_write_cost: float = 1.0  # bytes of L2 service that a written byte takes, in read bytes
    l2_port_bytes_per_cycle: float  # of one SM
    dram_extra_latency_ns: float  # beyond an L2 hit, unloaded
    dram_gbytes_per_s: float  # achieved
    dram_channels: int
    dram_interleave_bytes: int  # consecutive bytes on one channel and in one partition of L2
    dram_write_batch_bytes: int  # a channel collects these and then writes them together
    dram_turnaround_ns: float  # a channel idles for a change to writes and back
    tma_issue_cycles: int  # between bulk copies of one SM
    tma_extra_latency_cycles: int  # beyond an LDG
    tma_bytes_per_cycle: float  # request generation
    cp_async_extra_latency_cycles: int
    store_latency_cycles: int  # until a global store is visible in L2
    # launch
    kernel_launch_us: float
    kernel_drain_us: float
    cta_launch_cycles: int
    # clock under load (power limit)
    clock_burst_mhz: float  # at full tensor use, short kernels
    clock_sustained_mhz: float  # at full tensor use, after many time constants
    clock_time_constant_ms: float
    # L2 state of published cold runs
    l2_flush_dirty_fraction: float  # share of L2 lines that a flush leaves dirty
    instruction_miss_cycles: int = 0  # effective time for a line of eight instructions after the caches were flushed
    # FIBER: absent unless a file or "+fiber" says otherwise (docs/reference/fiber.md)
    dynamic_parallelism: bool = False  # SETFIBER; registers that belong to no warp
    fine_scheduling: bool = False  # full and empty bits, matrix instructions of one weft
    register_sharing: bool = False  # crossbar: sources in another subpartition
    sharing_scope: Literal["sm", "subpartition"] = "sm"
    busy_bits: Literal["bind", "paper"] = "bind"
    max_wefts_per_subpartition: int = 0
    set_fiber_num_cycles: int = 0
    busy_bit_broadcast_cycles: int = 1
    matrix_queue_depth: int = 0  # weft-level matrix instructions of a subpartition that may wait
    operand_prefetch_steps: int = 0  # steps of eight columns whose operands may be read ahead
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False)

    def replace(self, **changes: Any) -> Machine:
        """Return a copy with fields changed, checked like a preset. Raises UserError on unknown names or bad values."""
        from heddle.machine.check import checked

        return checked(self, changes)

    def op_timing(
        self, op: str, *, form: str = "", dtype: str = "", shape: tuple[int, int, int] | None = None
    ) -> OpTiming:
        """Return an opcode's timing: the most specific of OP.FORM, OP.MNK.DTYPE, OP.MNK, OP.DTYPE and OP in `ops`.

        MNK joins the three numbers of `shape` ("HMMA.16816"). Raises UserError if this GPU lacks the opcode.
        """
        mnk = "".join(map(str, shape)) if shape else ""
        for key in (form, f"{mnk}.{dtype}", mnk, dtype):
            if key and (timing := self.ops.get(f"{op}.{key}")) is not None:
                return timing
        if (timing := self.ops.get(op)) is None:
            raise unknown_name(
                f"opcode on {self.name} ({self.architecture})", op, (k for k in self.ops if k in OPCODES)
            )
        return timing

    def dram_bytes_per_cycle(self, clock_mhz: float) -> float:
        """Chip-wide DRAM bytes in one SM clock cycle."""
        return self.dram_gbytes_per_s * 1e3 / clock_mhz

    def as_dict(self) -> dict[str, Any]:
        """Plain values of all fields, without provenance."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "provenance"}
