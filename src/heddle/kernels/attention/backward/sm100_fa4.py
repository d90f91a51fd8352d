"""The main kernel of the backward pass of FlashAttention 4 on B200: dK and dV of a CTA's keys, and its part of dQ.

Roles, tiles and order are those of the open kernel, here with one CTA (github.com/Dao-AILab/flash-attention at 0251105,
flash_attn/cute/flash_bwd_sm100.py): two warp groups compute P and dS, a warp issues the products, one loads, and a warp
group takes dQ of every block out of tensor memory and adds it to global memory.
"""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.backward.shape import backward_flops
from heddle.kernels.attention.backward.sm100_fa4_compute import Compute
from heddle.kernels.attention.backward.sm100_fa4_config import GROUPS, ROWS, Fa4BackwardConfig, registers
from heddle.kernels.attention.backward.sm100_fa4_memory import Memory
from heddle.kernels.attention.backward.sm100_fa4_out import Gradients, reduce
from heddle.kernels.attention.backward.sm100_fa4_pair import pair_of_ctas
from heddle.kernels.attention.backward.sm100_fa4_products import Products
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, kernel

OTHER_REGISTERS = 88
"""What setmaxnreg gives the warps that load and multiply."""


@kernel
def attention_bwd_fa4(
    k: Builder, problem: AttentionProblem, config: Fa4BackwardConfig, items: dict[str, list[int]]
) -> None:
    """The way of dQ out, two groups that compute, products and loads, each in warps of its own; or a pair of CTAs."""
    if config.pairs:
        pair_of_ctas(k, problem, config, items)
        return
    k.flops = backward_flops(problem)
    k.work_items(items, clusters=len(items["key"]), schedule="launch")
    memory = Memory(k, problem)
    has = {name: any(items[name]) for name in ("more", "only")}
    reduce_registers, compute_registers = registers(problem, config)
    with k.role("reduce", warps=GROUP_WARPS, registers=reduce_registers):
        reduce(k, problem, memory)
    for group in range(GROUPS):
        compute, gradients = Compute(k, problem, memory, group), Gradients(k, problem, memory, group)
        with k.role(f"compute{group}", warps=GROUP_WARPS, registers=compute_registers):
            memory.meet()
            for item in k.work():
                compute.blocks(item)
                gradients.run(item)
    with k.role("matrix", warps=1, registers=OTHER_REGISTERS):
        Products(k, memory).run(has)
    with k.role("load", warps=1, registers=OTHER_REGISTERS):
        load(k, memory, has)


def load(k: Builder, memory: Memory, has: dict[str, bool]) -> None:
    """Load K with the first block of Q and V with that of dO, then Q and dO block by block."""
    tensors, queries, outputs = memory.tensors, memory.queries, memory.outputs
    memory.meet()
    for item in k.work():
        queries.load(item, item.first, (memory.keys, tensors.k))
        outputs.load(item, item.first, (memory.values, tensors.v))
        if has["more"]:
            with k.when(item.more):
                for block in k.range(item.more, name="loaded"):
                    queries.load(item, item.first + ROWS + block * ROWS)
                    outputs.load(item, item.first + ROWS + block * ROWS)
