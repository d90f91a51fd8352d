"""Attention backward on A100 with FIBER: operands, scores and gradients in shared vector registers.

A FIBER-thread keeps blocks of 64 keys of one query head, 16 in each subpartition, and goes through the queries that see
them. K, V, Q and dO become fragments once for the whole SM. Four wefts multiply, by weft-level products: dK and dV grow
in registers that nobody else touches. Four make P and dS between two products, four add dQ to memory; bits order every
hand-over. Only dS crosses from rows to columns, through shared memory, within a subpartition.
"""

from __future__ import annotations

from heddle.kernels.attention.backward.shape import backward_flops
from heddle.kernels.attention.backward.sm80_fiber_config import GROUP, FiberBackward80Config
from heddle.kernels.attention.backward.sm80_fiber_memory import TURNING, Memory
from heddle.kernels.attention.backward.sm80_fiber_products import Products, channels, multiply_registers
from heddle.kernels.attention.backward.sm80_fiber_slopes import Slopes, add_dq, slopes_registers
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, kernel

COPY_REGISTERS = 24
"""Addresses and counters of the weft that copies."""
LOAD_REGISTERS = 12
"""Of a weft that makes fragments."""
TURN_REGISTERS = 8
"""Of a weft that makes those of one tensor."""
ADD_REGISTERS = 12
"""Addresses and counters of a weft that adds dQ to memory."""


@kernel
def attention_bwd_sm80_fiber(
    k: Builder, problem: AttentionProblem, config: FiberBackward80Config, items: dict[str, list[int]], clusters: int
) -> None:
    """Persistent over blocks of keys; who is free takes the next."""
    k.flops = backward_flops(problem)
    k.work_items(items, clusters=clusters, schedule="dynamic" if problem.causal else "static")
    memory, pool = Memory(k, problem, config), channels(k, problem, config)
    products = Products(k, problem, config, memory, pool)
    slopes = Slopes(k, problem, config, memory, pool)
    has = {name: any(values) for name, values in items.items()}
    k.set_fiber_num(copy=1, turn_q=TURNING, turn_do=TURNING, rows=GROUP, slopes=GROUP, add=GROUP, multiply=GROUP)

    with k.role("copy", window=0, registers=COPY_REGISTERS):
        for item in k.work():
            memory.copy(item, has["steady"])
    for which, name in enumerate(("turn_q", "turn_do")):
        with k.role(name, window=1, registers=TURN_REGISTERS, pace=config.pace):
            for item in k.work():
                memory.load_turned(item, which)
    with k.role("rows", window=0, registers=LOAD_REGISTERS, pace=config.pace):
        for item in k.work():
            memory.load_rows(item)
    with k.role("slopes", window=0, registers=slopes_registers(config), pace=config.pace):
        for item in k.work():
            slopes.tile(item, has["plain"], has["masked"])
    with k.role("add", window=0, registers=ADD_REGISTERS, pace=config.pace):
        for item in k.work():
            add_dq(k, problem, config, memory, pool, item)
    with k.role("multiply", window=1, registers=multiply_registers(problem, config)):
        for item in k.work():
            products.tile(item, has["one"], has["more"], has["middle"])
