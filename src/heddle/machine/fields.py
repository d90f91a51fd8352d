"""Unit, bound and meaning of every scalar field of `Machine`: what the loader checks and the reference page prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Bound = Literal["positive", "count", "non-negative", "share", "share below one", "any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldInfo:
    """What a field is measured in, which values it may take, and what it means."""

    unit: str
    bound: Bound
    meaning: str
    group: str


OPTIONAL_GROUP = "FIBER features"
"""Fields that a machine need not give."""

_GROUPS: dict[str, list[tuple[str, str, Bound, str]]] = {
    "identity": [
        ("name", "text", "any", "short name, as given to --gpu"),
        ("description", "text", "any", "which product the numbers describe"),
        ("architecture", "text", "any", "sm_80, sm_90 or sm_100: the instructions and asynchronous units that exist"),
    ],
    "chip": [
        ("sms", "SMs", "count", "streaming multiprocessors enabled"),
        ("max_clock_mhz", "MHz", "positive", "highest SM clock"),
        ("tensor_peak_clock_mhz", "MHz", "positive", "clock at which the vendor's tensor peak is defined"),
        ("tdp_watts", "W", "positive", "board power limit"),
    ],
    "streaming multiprocessor": [
        ("subpartitions", "per SM", "positive", "schedulers, each with its own registers and pipes"),
        ("max_warps_per_sm", "warps", "positive", "resident warps"),
        ("max_ctas_per_sm", "CTAs", "positive", "resident CTAs"),
        ("vector_registers", "per SM", "positive", "registers of 32 lanes x 32 bit"),
        ("max_registers_per_thread", "registers", "positive", "register numbers that an instruction can name"),
        ("register_allocation_unit", "registers", "positive", "registers a thread are rounded up to this"),
        ("shared_memory_bytes", "B per SM", "positive", "shared memory that CTAs can get"),
        ("shared_memory_bytes_per_cta", "B", "positive", "most that one CTA can get"),
        ("shared_memory_reserved_bytes_per_cta", "B", "non-negative", "taken by the system from each CTA's share"),
        ("tensor_memory_columns", "columns", "non-negative", "tensor memory: columns of 128 lanes x 32 bit"),
    ],
    "register file": [
        ("register_banks", "per subpartition", "positive", "banks; a register's bank is its index modulo this"),
        ("register_reads_per_bank_per_cycle", "reads/cycle", "positive", "read ports of a bank"),
        ("register_reuse_cache", "flag", "any", "operand cache steered by the reuse bits"),
    ],
    "shared memory and load/store": [
        ("shared_bytes_per_cycle", "B/cycle/SM", "positive", "shared-memory bandwidth"),
        ("shared_load_latency_cycles", "cycles", "positive", "LDS of 128 bytes, issue to use"),
        ("shared_conflict_cycles_per_way", "cycles", "non-negative", "extra for each further way of a bank conflict"),
        ("shared_async_slack_cycles", "cycles", "non-negative",
         "backlog that asynchronous writes and matrix operand reads may build up before a matrix instruction waits"),
        ("shared_async_write_share", "share", "share",
         "part of the time of asynchronously written bytes that joins the backlog; the rest fills idle bank cycles"),
        ("lsu_queue_depth", "instructions", "positive", "memory instructions of a subpartition that may wait"),
    ],
    "tensor cores": [
        ("tensor_flops_per_cycle", "FLOP/cycle/SM", "positive", "dense fp16 rate"),
        ("wgmma_floor_rs_cycles", "cycles", "non-negative", "shortest wgmma with A in registers"),
        ("wgmma_tail_cycles", "cycles", "non-negative", "from the end of operand reads to the last accumulator"),
        ("wgmma_queue_depth", "instructions", "non-negative", "wgmma of a warp group that may wait"),
        ("wgmma_switch_cycles", "cycles", "non-negative", "extra when the matrix unit changes warp group"),
        ("tensor_port_share", "share", "share below one",
         "register read-port cycles that an active matrix instruction with register accumulators takes"),
        ("tcgen05_overhead_cycles", "cycles", "non-negative", "added to each tcgen05.mma's initiation interval"),
        ("tcgen05_commit_cycles", "cycles", "non-negative", "from completion to the arrival on the mbarrier"),
        ("tcgen05_queue_depth", "instructions", "non-negative", "tcgen05.mma of an SM that may wait"),
        ("tensor_memory_read_bytes_per_cycle", "B/cycle/SM", "non-negative", "LDTM bandwidth"),
        ("tensor_memory_write_bytes_per_cycle", "B/cycle/SM", "non-negative", "STTM bandwidth"),
        ("tensor_memory_latency_cycles", "cycles", "non-negative", "beyond the transfer itself"),
    ],
    "synchronisation": [
        ("named_barrier_cycles", "cycles", "non-negative", "last arrival to release, without the part per warp"),
        ("named_barrier_cycles_per_warp", "cycles/warp", "non-negative", "further cost for each warp that meets"),
        ("mbarrier_arrive_cycles", "cycles", "non-negative", "issue of an arrival until it counts"),
        ("mbarrier_wait_cycles", "cycles", "non-negative", "successful TRYWAIT until the warp's next issue"),
        ("cluster_barrier_cycles", "cycles", "non-negative", "last arrival to release of a cluster barrier"),
        ("cluster_remote_cycles", "cycles", "non-negative", "one way to another SM of the cluster"),
        ("cluster_bytes_per_cycle", "B/cycle/SM", "non-negative", "bulk copies from one SM to another of the cluster"),
        ("wgmma_arrive_cycles", "cycles", "non-negative", "WARPGROUP.ARRIVE until the next issue"),
        ("set_registers_cycles", "cycles", "non-negative", "setmaxnreg until the next issue"),
        ("max_cluster_size", "CTAs", "positive", "largest cluster (1: no clusters)"),
    ],
    "memory": [
        ("l1_latency_cycles", "cycles", "positive", "LDG that hits L1 (for reference: L1 is not modelled)"),
        ("l2_bytes", "B", "positive", "bytes that L2 holds at full rate (the note names the nominal size)"),
        ("l2_partitions", "partitions", "count", "parts of L2 with different distance to an SM"),
        ("l2_near_latency_cycles", "cycles", "positive", "LDG that hits the near partition, unloaded"),
        ("l2_far_latency_cycles", "cycles", "positive", "LDG that hits the far partition, unloaded"),
        ("l2_bytes_per_cycle_per_sm", "B/cycle/SM", "positive", "chip L2 bandwidth divided by the SMs"),
        ("l2_write_cost", "read bytes", "positive", "L2 service that a byte of a store or reduction takes"),
        ("l2_port_bytes_per_cycle", "B/cycle", "positive", "most that one SM can take from L2, and give to it"),
        ("dram_extra_latency_ns", "ns", "non-negative", "beyond an L2 hit, unloaded"),
        ("dram_gbytes_per_s", "GB/s", "positive", "achieved DRAM bandwidth"),
        ("dram_channels", "channels", "count", "independent DRAM channels"),
        ("dram_interleave_bytes", "B", "count", "consecutive, on one channel and in one L2 partition"),
        ("dram_write_batch_bytes", "B", "positive", "that a channel collects and then writes together"),
        ("dram_turnaround_ns", "ns", "non-negative", "a channel idles for a change from reads to writes and back"),
        ("tma_issue_cycles", "cycles", "non-negative", "between bulk copies of one SM"),
        ("tma_extra_latency_cycles", "cycles", "non-negative", "of a bulk copy, beyond an LDG"),
        ("tma_bytes_per_cycle", "B/cycle/SM", "positive", "bulk-copy request generation"),
        ("cp_async_extra_latency_cycles", "cycles", "non-negative", "of an LDGSTS, beyond an LDG"),
        ("store_latency_cycles", "cycles", "non-negative", "global store until it is visible in L2"),
    ],
    "launch": [
        ("kernel_launch_us", "us", "non-negative", "launch until the first CTA starts"),
        ("kernel_drain_us", "us", "non-negative", "last store until the kernel counts as finished"),
        ("cta_launch_cycles", "cycles", "non-negative", "a slot becomes free until the next CTA starts in it"),
        ("instruction_miss_cycles", "cycles", "non-negative", "time for a line of eight instructions after a flush"),
    ],
    "clock and published conditions": [
        ("clock_burst_mhz", "MHz", "positive", "clock at full tensor use, short kernels"),
        ("clock_sustained_mhz", "MHz", "positive", "clock at full tensor use, after many time constants"),
        ("clock_time_constant_ms", "ms", "positive", "time in which the power limit takes hold"),
        ("l2_flush_dirty_fraction", "share", "share", "L2 lines that a benchmark's cache flush leaves dirty"),
    ],
    OPTIONAL_GROUP: [
        ("dynamic_parallelism", "flag", "any", "SETFIBER: the number of wefts changes, registers belong to no warp"),
        ("fine_scheduling", "flag", "any", "full and empty bits of registers, matrix instructions of one weft"),
        ("register_sharing", "flag", "any", "sources in registers of another subpartition, read through the crossbar"),
        ("sharing_scope", "text", "any", "sm, or subpartition: registers are shared within a subpartition only"),
        ("busy_bits", "text", "any", "bind: bits change as bound; paper: every read sets and clears the full bit"),
        ("max_wefts_per_subpartition", "wefts", "non-negative", "weft contexts"),
        ("set_fiber_num_cycles", "cycles", "non-negative", "from the last arrival at a SETFIBER to the next issue"),
        ("busy_bit_broadcast_cycles", "cycles", "non-negative", "until other subpartitions see a bit change"),
        ("matrix_queue_depth", "instructions", "non-negative", "weft-level matrix instructions that may wait"),
        ("operand_prefetch_steps", "steps", "non-negative", "steps of eight columns whose operands are read ahead"),
    ],
}  # fmt: skip

FIELDS: dict[str, FieldInfo] = {
    name: FieldInfo(unit=unit, bound=bound, meaning=meaning, group=group)
    for group, rows in _GROUPS.items()
    for name, unit, bound, meaning in rows
}
"""Scalar fields of `Machine` by name, in the order in which presets list them."""

MAPPING_UNITS: dict[str, str] = {
    "pipes": "scope",
    "ops": "cycles",
    "tensor_rate_scale": "x fp16 rate",
    "tcgen05_latency_cycles": "cycles",
}
"""Mapping fields of `Machine`, with the unit of an entry."""
