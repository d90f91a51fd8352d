"""A quick estimate of a configuration's cycles: an order in which to try candidates, never a result."""

from __future__ import annotations

from heddle.ir.dtypes import dtype_bytes
from heddle.kernels._rounding import ceil_div
from heddle.kernels.gemm.raster import item_count
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.machine.spec import Machine

OVERLAPPED = ("pingpong", "tcgen05")
"""Schedules whose epilogue runs beside the next main loop."""


def estimate_cycles(problem: GemmProblem, config: GemmConfig, machine: Machine) -> float:
    """Return waves x (main loop + what nothing hides)."""
    waves = ceil_div(item_count(problem, config), machine.sms // config.cluster)
    steps = ceil_div(ceil_div(problem.k, config.tile_k), config.split_k)
    latency = machine.l2_far_latency_cycles + machine.store_latency_cycles
    store = _store_cycles(problem, config, machine)
    exposed = 0.0 if config.schedule in OVERLAPPED else store
    merge = 2 * latency + 2 * store if config.split_k > 1 else 0.0
    return waves * (steps * _step_cycles(problem, config, machine) + exposed + latency) + store + merge


def _step_cycles(problem: GemmProblem, config: GemmConfig, machine: Machine) -> float:
    """Return the larger of matrix time and load time of one step of k on one SM."""
    rate = machine.tensor_flops_per_cycle * machine.tensor_rate_scale.get(problem.dtype, 1.0)
    matrix = 2 * config.tile_m * config.tile_n * config.tile_k / rate
    rows = min(config.tile_m, problem.m) / config.cluster_n + min(config.tile_n, problem.n) / config.cluster_m
    return max(matrix, rows * config.tile_k * problem.element_bytes / machine.l2_bytes_per_cycle_per_sm)


def _store_cycles(problem: GemmProblem, config: GemmConfig, machine: Machine) -> float:
    size = dtype_bytes("fp32") if config.split_k > 1 else problem.element_bytes
    area = min(config.tile_m, problem.m) * min(config.tile_n, problem.n)
    return area * size / machine.l2_bytes_per_cycle_per_sm
