"""Cycles that kernels with weights as rows (`turned`), and products by mma.sync, are likely to take at least.

An order in which to try, and what need not be tried; never a result.
"""

from __future__ import annotations

from heddle.kernels._rounding import ceil_div
from heddle.kernels._warp import LANES
from heddle.kernels.w4a16.candidates import WORD_INSTRUCTIONS
from heddle.kernels.w4a16.items import WORD, code_bytes, item_count
from heddle.kernels.w4a16.shape import ELEMENT_BYTES, STEP_K, TILE_K, W4Config, W4Problem
from heddle.machine.spec import Machine

MMA_SYNC = (16, 8, STEP_K)
"""m, n and k of one mma.sync (PTX ISA, m16n8k16)."""


def estimate_cycles(problem: W4Problem, config: W4Config, machine: Machine) -> float:
    """Return waves x (main loop + latency + store); weights are made while the products before them run."""
    waves = ceil_div(item_count(problem, config), machine.sms)
    rows, cols = min(config.tile_m, problem.m), min(config.tile_n, problem.n)
    words = config.tile_n * TILE_K // WORD
    matrix = 2 * config.tile_m * config.tile_n * TILE_K / machine.tensor_flops_per_cycle
    codes = cols * code_bytes(problem) * TILE_K // WORD
    loads = (ELEMENT_BYTES * rows * TILE_K + codes) / machine.l2_bytes_per_cycle_per_sm
    made = words * WORD_INSTRUCTIONS[problem.scheme] / (LANES * machine.subpartitions)
    latency = machine.l2_far_latency_cycles + machine.store_latency_cycles
    store = ELEMENT_BYTES * rows * cols / machine.l2_bytes_per_cycle_per_sm
    return waves * (ceil_div(problem.k, TILE_K) * max(matrix, loads, made) + latency + store)


def mma_sync_least_cycles(problem: W4Problem, machine: Machine) -> float:
    """Return what the useful products take by mma.sync, spread over all SMs: no tile takes less."""
    m, n, k = MMA_SYNC
    rate = 2 * m * n * k / machine.op_timing("HMMA", shape=MMA_SYNC).initiation_cycles * machine.subpartitions
    return problem.flops / (rate * machine.sms)
