"""Attention backward on B200 with FIBER: roles of wefts around tensor memory, first operands in shared registers.

A FIBER-thread keeps 128 keys of a query head, 32 in each subpartition, and goes through the queries that see them, 64
a step. K, V and K transposed are fragments in the pool; P and dS become fragments where they are computed. So of five
products shared memory gives the second operands alone, and S and dP are free for the next product once they are read.
"""

from __future__ import annotations

from heddle.kernels.attention.backward_shape import backward_flops
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.sm100_fiber_backward_compute import Changes, Weights
from heddle.kernels.attention.sm100_fiber_backward_config import GROUP, FiberBackward100Config
from heddle.kernels.attention.sm100_fiber_backward_memory import Memory
from heddle.kernels.attention.sm100_fiber_backward_out import Out
from heddle.kernels.attention.sm100_fiber_backward_products import Products
from heddle.lang import Builder, kernel

COPY_REGISTERS = 4
"""Registers of a role that copies, or issues products."""
FRAGMENT_REGISTERS = 8
"""Of the wefts that load fragments: elements on their way."""
OUT_REGISTERS = 44
"""Of those that bring gradients out: a part, and what is converted."""
WEIGHT_REGISTERS, CHANGE_REGISTERS = 72, 68
"""Of those that compute P, and dS: two chunks, statistics, and what is rounded."""


@kernel
def attention_bwd_sm100_fiber(
    k: Builder, problem: AttentionProblem, config: FiberBackward100Config, items: dict[str, list[int]]
) -> None:
    """Every hand-over between wefts is a pool tensor, columns of tensor memory or an mbarrier."""
    k.flops = backward_flops(problem)
    k.work_items(items, clusters=len(items["key"]), schedule="launch")
    has = {name: any(values) for name, values in items.items()}
    memory = Memory(k, problem, config)
    products, out = Products(k, memory), Out(k, problem, memory)
    weights, changes = Weights(k, problem, memory), Changes(k, problem, memory)
    k.set_fiber_num(load=1, store=1, products=GROUP, weights=GROUP, changes=GROUP, out=GROUP, fragments=GROUP)

    with k.role("load", window=1, registers=COPY_REGISTERS):
        for item in k.work():
            memory.load(item, has)
    with k.role("store", window=1, registers=COPY_REGISTERS):
        for item in k.work():
            memory.store(item)
    with k.role("products", window=0, registers=COPY_REGISTERS):
        for item in k.work():
            products.run(item, has)
    with k.role("weights", window=0, registers=WEIGHT_REGISTERS):
        for item in k.work():
            weights.run(item)
    with k.role("changes", window=0, registers=CHANGE_REGISTERS):
        for item in k.work():
            changes.run(item)
    with k.role("out", window=1, registers=OUT_REGISTERS):
        for item in k.work():
            out.run(item)
    with k.role("fragments", window=1, registers=FRAGMENT_REGISTERS):
        for _ in k.work():
            memory.fragments()
