"""FlashAttention 3 on H100: a producer warp and two or three warp groups, each with 64 rows of the tile."""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.forward.sm90_fa3_config import check_fa3, fa3_config, register_counts, shared_bytes
from heddle.kernels.attention.forward.sm90_fa3_consumer import Consumer
from heddle.kernels.attention.forward.sm90_fa3_first import consumer_of_first_release, items_of_first_release
from heddle.kernels.attention.forward.sm90_fa3_memory import Memory
from heddle.kernels.attention.forward.sm90_fa3_producer import produce, produce_turned, produce_turned_first
from heddle.kernels.attention.forward.sm90_fa3_transpose import TransposedBlocks
from heddle.kernels.attention.implementation import Implementation
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.lang import Builder, kernel


@kernel
def attention_fa3(
    k: Builder, problem: AttentionProblem, config: AttentionConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """Consumers multiply and exponentiate what the producer loads, from the last visible block to the first."""
    k.flops, k.cluster_size = problem.flops, config.cluster
    items = items_of_first_release(items, clusters) if config.release == 1 else items
    k.work_items(items, clusters=clusters, schedule=config.order)
    memory = Memory(k, problem, config, followed=any(items.get("later", [1])))
    roles(k, problem, config, memory, items, consumer_of_first_release(problem) if config.release == 1 else Consumer)


def roles(
    k: Builder,
    problem: AttentionProblem,
    config: AttentionConfig,
    memory: Memory,
    items: dict[str, list[int]],
    consumer: type[Consumer],
) -> None:
    """Declare the warp groups and the producer; `consumer` is what a warp group does."""
    producer_registers, consumer_registers = register_counts(problem, config)
    for group in range(config.groups):
        with k.role(f"consumer{group}", warps=GROUP_WARPS, registers=consumer_registers):
            consumer(k, problem, config, memory, group, items).run()
    with k.role("producer", warps=memory.producer_warps, registers=producer_registers):
        if isinstance(memory.values, TransposedBlocks):
            turned = produce_turned_first if config.release == 1 else produce_turned
            turned(k, config, memory, memory.values, any(items["more"]))
        else:
            produce(k, config, memory, any(items["more"]))


FA3 = Implementation(
    schedule="fa3",
    dtypes=("fp16", "bf16", "fp8_e4m3"),
    config=fa3_config,
    check=check_fa3,
    shared_bytes=shared_bytes,
    kernel=attention_fa3,
)
