"""Attention backward on A100 with FIBER: operands, scores and gradients in shared vector registers.

A FIBER-thread keeps blocks of 64 keys of one query head, 16 in each subpartition, and goes through the queries that see
them. K, V, Q and dO become fragments once for the whole SM. Four wefts multiply, by weft-level products: dK and dV grow
in registers that nobody else touches. Four make P and dS between two products, four add dQ to memory; bits order every
hand-over. Only dS crosses from rows to columns, through shared memory, within a subpartition.

With `copies`, for machines whose registers are shared inside a subpartition only, each subpartition has all of every
second operand: four wefts load Q and dO, and what others have stored of dS, whole. A step then has half of the queries,
shared memory gives four times as much, and dQ of each block of keys is added by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels.attention.backward.shape import backward_flops
from heddle.kernels.attention.backward.sm80_fiber_config import GROUP, FiberBackward80Config
from heddle.kernels.attention.backward.sm80_fiber_memory import TURNING, Memory
from heddle.kernels.attention.backward.sm80_fiber_products import Products, channels, multiply_registers
from heddle.kernels.attention.backward.sm80_fiber_slopes import Slopes, add_dq, slopes_registers
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, kernel

BEGIN_REGISTERS = 4
"""Of a weft that does nothing but begin."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """Registers of wefts: addresses and counters, and what a load has on its way.

    copy: the weft that copies; rows: that makes fragments; turn: that makes those of one tensor; add: that adds dQ.
    """

    copy: int = 24
    rows: int = 12
    turn: int = 8
    add: int = 12


BUDGETS = Budgets()
BUDGETS_OF_COPIES = Budgets(copy=16, rows=10, turn=8, add=8)
"""Where each subpartition has all of every second operand there is less room."""


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
    budgets = BUDGETS_OF_COPIES if config.copies else BUDGETS
    turns = _spawn(k, config)

    with k.role("copy", window=0, registers=budgets.copy):
        for item in k.work():
            memory.copy(item, has["steady"])
    for name, which in turns.items():
        with k.role(name, window=1, registers=budgets.turn, pace=config.pace):
            for item in k.work():
                memory.load_turned(item, *which)
    with k.role("rows", window=0, registers=budgets.rows, pace=config.pace):
        for item in k.work():
            memory.load_rows(item)
    with k.role("slopes", window=0, registers=slopes_registers(config), pace=config.pace):
        for item in k.work():
            slopes.tile(item, has["plain"], has["masked"])
    if config.copies:
        with k.role("turn_slopes", window=0, registers=budgets.turn, pace=config.pace):
            for item in k.work():
                slopes.load_turned(item)
    with k.role("add", window=int(config.copies), registers=budgets.add, pace=config.pace):
        for item in k.work():
            add_dq(k, problem, config, memory, pool, item)
    with k.role("multiply", window=1, registers=multiply_registers(problem, config)):
        for item in k.work():
            products.tile(item, has["one"], has["more"], has["middle"])


def _spawn(k: Builder, config: FiberBackward80Config) -> dict[str, tuple[int, ...]]:
    """Spawn the wefts, and return the roles that load Q (0) and dO (1) turned, each with what it loads.

    Where each subpartition has all of a second operand there are four wefts for whatever is loaded or copied.
    """
    turns: dict[str, tuple[int, ...]] = {"turn": (1, 0)} if config.copies else {"turn_q": (0,), "turn_do": (1,)}
    begin, turning, slopes = ({"begin": 1}, GROUP, {"turn_slopes": GROUP}) if config.copies else ({}, TURNING, {})
    four = {"rows": GROUP, "slopes": GROUP, **slopes, "add": GROUP, "multiply": GROUP}
    k.set_fiber_num(**begin, copy=GROUP if config.copies else 1, **dict.fromkeys(turns, turning), **four)
    if config.copies:
        with k.role("begin", registers=BEGIN_REGISTERS):  # the weft that a FIBER-thread starts with
            pass
    return turns
