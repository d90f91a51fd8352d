"""Attention backward on B200 with FIBER: roles of wefts around tensor memory, first operands in shared registers.

A FIBER-thread keeps 128 keys of a query head, 32 in each subpartition, and goes through the queries that see them, 64
a step. K and V are fragments in the pool; P and dS become fragments where they are computed. So of four products shared
memory gives the second operands alone, and S and dP are free for the next product once they are read. At head size 128
K transposed is a fragment, too, for dQ^T = K^T dS^T. A head of 64 elements does not fill the lanes of tensor memory:
there dQ = dS K of both steps of a block takes both operands from shared memory.
"""

from __future__ import annotations

from heddle.kernels.attention.backward.shape import backward_flops
from heddle.kernels.attention.backward.sm100_fiber_compute import Changes, Weights
from heddle.kernels.attention.backward.sm100_fiber_config import (
    GROUP,
    LANES,
    SHORT_CHUNK,
    WEIGHT_CHUNK,
    FiberBackward100Config,
)
from heddle.kernels.attention.backward.sm100_fiber_memory import Memory
from heddle.kernels.attention.backward.sm100_fiber_out import Out
from heddle.kernels.attention.backward.sm100_fiber_products import Products
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, kernel

COPY_REGISTERS = 4
"""Registers of a role that copies, or issues products."""
FRAGMENT_REGISTERS = 8
"""Of the wefts that load fragments: elements on their way."""
OUT_REGISTERS = 44
"""Of those that bring gradients out: a part, and what is converted."""
WEIGHT_REGISTERS, CHANGE_REGISTERS = 72, 68
"""Of those that compute P, and dS: two chunks, statistics, and what is rounded."""
SHORT_WEIGHT_REGISTERS, SHORT_CHANGE_REGISTERS = 44, 60
"""The same where two groups compute P; what is left is enough for the scheduler."""

Computing = dict[str, tuple[Weights | Changes, int, int]]
"""Code, window and registers of each role that computes."""


def computing_roles(k: Builder, problem: AttentionProblem, memory: Memory) -> Computing:
    """Return the roles that make P and dS: where products are short two make P, of every second step each."""
    changes = Changes(k, problem, memory)
    if memory.transposed:
        weights = Weights(k, problem, memory, 0, WEIGHT_CHUNK)
        return {"weights": (weights, 0, WEIGHT_REGISTERS), "changes": (changes, 0, CHANGE_REGISTERS)}
    parts = [Weights(k, problem, memory, lane, SHORT_CHUNK) for lane in range(LANES)]
    found: Computing = {f"weights{lane}": (parts[lane], lane, SHORT_WEIGHT_REGISTERS) for lane in range(LANES)}
    return found | {"changes": (changes, 0, SHORT_CHANGE_REGISTERS)}


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
    computing = computing_roles(k, problem, memory)
    wefts = dict.fromkeys(("products", *computing, "out", "fragments"), GROUP)
    k.set_fiber_num(load=1, store=1, **wefts)

    with k.role("load", window=1, registers=COPY_REGISTERS):
        for item in k.work():
            memory.load(item, has)
    with k.role("store", window=1, registers=COPY_REGISTERS):
        for item in k.work():
            memory.store(item)
    with k.role("products", window=0, registers=COPY_REGISTERS):
        for item in k.work():
            products.run(item, has)
    for name, (part, window, registers) in computing.items():
        with k.role(name, window=window, registers=registers):
            for item in k.work():
                part.run(item)
    with k.role("out", window=1, registers=OUT_REGISTERS):
        for item in k.work():
            out.run(item)
    with k.role("fragments", window=1, registers=FRAGMENT_REGISTERS):
        for _ in k.work():
            memory.fragments()
