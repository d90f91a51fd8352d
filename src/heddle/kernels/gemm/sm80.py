"""GEMM on A100: one tile a CTA; all warps copy with cp.async into a ring of stages and multiply with mma.sync."""

from __future__ import annotations

from heddle.errors import UserError
from heddle.kernels._rounding import ceil_div
from heddle.kernels._warp import LANES
from heddle.kernels.gemm.epilogue import Output
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.lang import Builder, Index, Item, kernel

STORE_BARRIER = 1
LANE_BYTES = (16, 8, 4)
"""What one lane copies with cp.async."""
MMA_FRAGMENT_REGISTERS = (4, 2)
"""Registers of one A fragment (16 x 16) and one B fragment (8 x 16) of mma.m16n8k16."""
ADDRESS_REGISTERS = 40
"""Addresses, counters and epilogue temporaries of a thread."""
REGISTER_UNIT = 8
"""Budgets are multiples of this."""


def lane_bytes(problem: GemmProblem) -> int:
    """Return the widest cp.async whose alignment the rows of A and B keep; raises UserError if there is none."""
    row_bytes = problem.k * problem.element_bytes
    for width in LANE_BYTES:
        if row_bytes % width == 0:
            return width
    raise UserError(
        f"rows of A and B have {row_bytes} bytes; cp.async copies 4, 8 or 16 aligned bytes",
        hint=f"pad k = {problem.k} to an even number",
    )


def thread_registers(config: GemmConfig) -> int:
    """Return the registers that a thread needs: accumulators, two sets of fragments, addresses."""
    rows, cols = config.tile_m // config.warps[0], config.tile_n // config.warps[1]
    fragments = rows // 16 * MMA_FRAGMENT_REGISTERS[0] + cols // 8 * MMA_FRAGMENT_REGISTERS[1]
    needed = rows * cols // LANES + 2 * fragments + ADDRESS_REGISTERS
    return ceil_div(needed, REGISTER_UNIT) * REGISTER_UNIT


@kernel
def gemm_sm80(k: Builder, problem: GemmProblem, config: GemmConfig, items: dict[str, list[int]], clusters: int) -> None:
    """Keep stages - 1 copies in flight: wait for the oldest, start the newest, multiply."""
    k.flops = problem.flops
    k.work_items(items, clusters=clusters, schedule="launch")
    a_global = k.tensor("A", (problem.m, problem.k), problem.dtype)
    b_global = k.tensor("B", (problem.n, problem.k), problem.dtype)
    output = Output(k, problem, config)
    stages, width = config.stages, lane_bytes(problem)
    a = k.shared("a", (config.tile_m, config.tile_k), problem.dtype, stages=stages)
    b = k.shared("b", (config.tile_n, config.tile_k), problem.dtype, stages=stages)
    ring = k.ring("load", stages)
    acc = k.registers("acc", (config.tile_m, config.tile_n), "fp32", warps=config.warps)
    writer = output.writer("out", acc, STORE_BARRIER, config.warps)

    def copy(item: Item, kb: Index | int, ahead: int) -> None:
        at_k = kb * config.tile_k + (item.k_begin if config.split_k > 1 else 0)
        k.cp_async(a[ring + ahead], a_global[item.row, at_k], bytes_per_lane=width)
        k.cp_async(b[ring + ahead], b_global[item.col, at_k], bytes_per_lane=width)

    def multiply_next() -> None:
        k.mma(acc, a[ring], b[ring])
        ring.advance()

    with k.role("worker", warps=config.warps[0] * config.warps[1], registers=thread_registers(config)):
        for item in k.work():
            k.fill(acc)
            for stage in range(stages - 1):
                copy(item, stage, stage)
                k.cp_async_commit()
            if min(items["k_blocks"]) >= stages:
                for kb in k.range(item.k_blocks - (stages - 1), name="kb"):
                    k.cp_async_wait(pending=stages - 2)
                    k.sync()
                    copy(item, kb + (stages - 1), stages - 1)
                    k.cp_async_commit()
                    multiply_next()
            for _ in k.range(stages - 1, name="tail"):
                k.cp_async_wait(pending=stages - 2)
                k.sync()
                k.cp_async_commit()  # an empty group keeps the count of groups behind
                multiply_next()
            writer.prepare(item)
            writer.store([(0, acc)], item)
