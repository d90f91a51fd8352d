"""GEMM on H100, ping-pong: persistent; one producer warp; two warp groups with a tile each, taking turns.

A group's turn at the matrix unit ends when it has issued its last product, so the other group's first product follows
at once, and its own epilogue runs beside the other's main loop.
"""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.gemm.epilogue import Output
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.kernels.gemm.sm90_pipeline import CONSUMER_REGISTERS, PRODUCER_REGISTERS, Pipeline
from heddle.lang import Builder, kernel

GROUPS = 2
TURN_BARRIERS = (1, 2)
STORE_BARRIERS = (3, 4)


@kernel
def gemm_sm90_pingpong(
    k: Builder, problem: GemmProblem, config: GemmConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """Group 0 takes the even, group 1 the odd items of a CTA; the ring of stages is common to both."""
    k.flops, k.cluster_size = problem.flops, config.cluster
    k.work_items(items, clusters=clusters)
    pipeline, output = Pipeline(k, problem, config, GROUP_WARPS), Output(k, problem, config)

    for group in range(GROUPS):
        other = 1 - group
        acc = k.registers(f"acc{group}", (config.tile_m, config.tile_n), "fp32", warps=(GROUP_WARPS, 1))
        part = output.part(f"part{group}", GROUP_WARPS)
        writer = output.writer(f"out{group}", part, STORE_BARRIERS[group], (GROUP_WARPS, 1))

        with k.role(f"consumer{group}", warps=GROUP_WARPS, registers=CONSUMER_REGISTERS):
            pipeline.begin()
            if group == 1:
                k.arrive(TURN_BARRIERS[other], warps=GROUPS * GROUP_WARPS)  # group 0 begins
            for item in k.work():
                mine, theirs = (item.turn0, item.turn1) if group == 0 else (item.turn1, item.turn0)
                with k.when(mine):
                    writer.prepare(item)
                    k.sync(TURN_BARRIERS[group], warps=GROUPS * GROUP_WARPS)
                    pipeline.multiply(item, acc, items["k_blocks"])
                    k.arrive(TURN_BARRIERS[other], warps=GROUPS * GROUP_WARPS)
                    pipeline.finish()
                    writer.store(output.columns(acc), item)
                with k.when(theirs):
                    pipeline.skip(item)
            writer.drain()
            pipeline.end()

    with k.role("producer", warps=1, registers=PRODUCER_REGISTERS):
        pipeline.begin()
        for item in k.work():
            pipeline.load(item)
        pipeline.end()
