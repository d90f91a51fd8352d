"""The main kernel of the backward pass of FlashAttention 3 on H100: dK and dV of a CTA's keys, and its part of dQ."""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.backward.shape import backward_flops
from heddle.kernels.attention.backward.sm90_fa3_config import GROUPS, REGISTERS, Fa3BackwardConfig
from heddle.kernels.attention.backward.sm90_fa3_consumer import Consumer
from heddle.kernels.attention.backward.sm90_fa3_first import FirstRelease, add_dq_first, load_first
from heddle.kernels.attention.backward.sm90_fa3_memory import Memory
from heddle.kernels.attention.backward.sm90_fa3_producer import add_dq, load
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, kernel


@kernel
def attention_bwd_fa3(
    k: Builder, problem: AttentionProblem, config: Fa3BackwardConfig, items: dict[str, list[int]]
) -> None:
    """Two warp groups multiply and differentiate what one warp loads; another adds dQ to global memory."""
    k.flops = backward_flops(problem)
    k.work_items(items, clusters=len(items["key"]), schedule="launch")
    memory = Memory(k, problem, config)
    producer_registers, consumer_registers = REGISTERS
    for group in range(GROUPS):
        with k.role(f"consumer{group}", warps=GROUP_WARPS, registers=consumer_registers):
            consumer = FirstRelease if config.release == 1 else Consumer
            consumer(k, problem, config, memory, group, items).run()
    with k.role("loader", warps=1, registers=producer_registers):
        if config.release == 1:
            load_first(k, config, memory)
        else:
            load(k, config, memory, any(items["more"]))
    with k.role("adder", warps=1, registers=producer_registers):
        (add_dq_first if config.release == 1 else add_dq)(k, config, memory)
