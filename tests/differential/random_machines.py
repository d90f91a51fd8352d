"""Small random machines that know every instruction of every generation, so that one program can mix them."""

from __future__ import annotations

import dataclasses
import random

from heddle.machine import Machine, OpTiming, machine

TICK = 1 / 256


def random_machine(rng: random.Random, cluster_size: int) -> Machine:
    """Return a chip of a few SMs whose numbers are small, so that queues fill and units contend."""
    a100, h100, b200 = machine("a100"), machine("h100"), machine("b200")
    ops = {**a100.ops, **h100.ops, **b200.ops}
    pick = rng.choice
    return dataclasses.replace(
        b200,
        name="random",
        sms=cluster_size * pick([1, 1, 2, 3]) + pick([0, 0, cluster_size - 1]),
        pipes={**a100.pipes, **h100.pipes, **b200.pipes},
        ops={name: _timing(rng, timing) for name, timing in ops.items()},
        max_ctas_per_sm=pick([1, 1, 2, 3]),
        register_banks=pick([1, 2, 2, 4]),
        register_reads_per_bank_per_cycle=pick([1, 1, 2]),
        register_reuse_cache=pick([True, True, False]),
        shared_bytes_per_cycle=pick([64, 128]),
        shared_conflict_cycles_per_way=pick([1, 2]),
        shared_async_slack_cycles=pick([0, 8, 64]),
        lsu_queue_depth=pick([1, 2, 5]),
        tensor_flops_per_cycle=pick([4096, 8192]),
        tensor_rate_scale={"fp16": 1.0, "bf16": 1.0, "tf32": 0.5, "fp8_e4m3": pick([2.0, 1.5])},
        wgmma_floor_rs_cycles=pick([0, 13, 40]),
        wgmma_tail_cycles=pick([1, 17]),
        wgmma_queue_depth=pick([1, 2, 6]),
        wgmma_switch_cycles=pick([0, 5]),
        tensor_port_share=pick([0.0, 0.5, 0.6]),
        tcgen05_overhead_cycles=pick([0.0, 3.3]),
        tcgen05_commit_cycles=pick([1, 9]),
        tcgen05_queue_depth=pick([1, 3]),
        tensor_memory_read_bytes_per_cycle=pick([96, 512]),
        tensor_memory_write_bytes_per_cycle=pick([64, 256]),
        tensor_memory_latency_cycles=pick([5, 20]),
        named_barrier_cycles=pick([1, 8]),
        named_barrier_cycles_per_warp=pick([0, 2]),
        mbarrier_arrive_cycles=pick([1, 7, 20]),
        mbarrier_wait_cycles=pick([0, 3, 18]),
        cluster_barrier_cycles=pick([4, 30]),
        cluster_remote_cycles=pick([3, 25]),
        cluster_bytes_per_cycle=47.0,
        wgmma_arrive_cycles=pick([1, 6]),
        set_registers_cycles=pick([1, 12]),
        l2_bytes=pick([1 << 13, 1 << 15, 1 << 20]),
        l2_partitions=pick([1, 2]),
        l2_near_latency_cycles=pick([12, 40]),
        l2_far_latency_cycles=pick([45, 77]),
        l2_bytes_per_cycle_per_sm=pick([17.3, 64.0]),
        l2_port_bytes_per_cycle=pick([25.0, 64.0]),
        dram_extra_latency_ns=pick([3.0, 31.4]),
        dram_gbytes_per_s=pick([400.0, 1500.0]),
        dram_channels=pick([1, 2, 5]),
        dram_interleave_bytes=pick([96, 512, 4096]),
        dram_write_batch_bytes=pick([96, 2048, 8192]),
        dram_turnaround_ns=pick([0.0, 7.3]),
        tma_issue_cycles=pick([1, 9]),
        tma_extra_latency_cycles=pick([0, 13]),
        tma_bytes_per_cycle=pick([37.0, 128.0]),
        cp_async_extra_latency_cycles=pick([0, 5]),
        store_latency_cycles=pick([8, 31]),
        cta_launch_cycles=pick([1, 40]),
        l2_flush_dirty_fraction=pick([0.0, 0.37]),
        instruction_miss_cycles=pick([0, 11]),
        l2_write_cost=pick([1.0, 1.7, 2.0]),
        shared_async_write_share=pick([0.0, 0.37, 0.5, 1.0]),
    )


def _timing(rng: random.Random, timing: OpTiming) -> OpTiming:
    """Vary an opcode's timing; initiation intervals may be a fraction of a cycle."""
    initiation = rng.choice([timing.initiation_cycles, rng.randrange(1, 900) * TICK])
    return OpTiming(
        pipe=timing.pipe,
        initiation_cycles=initiation,
        latency_cycles=max(1, timing.latency_cycles // rng.choice([1, 2, 8])),
    )
