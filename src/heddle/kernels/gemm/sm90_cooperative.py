"""GEMM on H100, cooperative: persistent; one producer warp; two warp groups share the rows of a tile."""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.gemm.epilogue import Output
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.kernels.gemm.sm90_pipeline import CONSUMER_REGISTERS, PRODUCER_REGISTERS, Pipeline
from heddle.lang import Builder, kernel

CONSUMER_WARPS = 2 * GROUP_WARPS
STORE_BARRIER = 1


@kernel
def gemm_sm90_cooperative(
    k: Builder, problem: GemmProblem, config: GemmConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """Consumers multiply what the producer loads; the next tile's loads run during the epilogue."""
    k.flops, k.cluster_size = problem.flops, config.cluster
    k.work_items(items, clusters=clusters)
    pipeline, output = Pipeline(k, problem, config, CONSUMER_WARPS), Output(k, problem, config)
    acc = k.registers("acc", (config.tile_m, config.tile_n), "fp32", warps=(CONSUMER_WARPS, 1))
    writer = output.writer("out", output.part("part", CONSUMER_WARPS), STORE_BARRIER, (CONSUMER_WARPS, 1))

    with k.role("consumer", warps=CONSUMER_WARPS, registers=CONSUMER_REGISTERS):
        pipeline.begin()
        for item in k.work():
            writer.prepare(item)
            pipeline.multiply(item, acc, items["k_blocks"])
            pipeline.finish()
            writer.store(output.columns(acc), item)
        writer.drain()
        pipeline.end()

    with k.role("producer", warps=1, registers=PRODUCER_REGISTERS):
        pipeline.begin()
        for item in k.work():
            pipeline.load(item)
        pipeline.end()
