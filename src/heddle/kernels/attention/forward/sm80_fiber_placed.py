"""Attention of A100 with FIBER, K and V in chosen subpartitions: to compare the paper's rule for B with others.

K and V are the second operands of all products. Here they lie in 1, 2 or 4 neighbouring subpartitions, loaded by a weft
in each; Q and the weights stay in the subpartition of their rows, as in `sm80_fiber`. The paper's rule for A is not
tried: weights are written where they are exponentiated, so half of the special function units would do all of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from heddle.kernels.attention.forward.sm80_fiber import LOAD_REGISTERS, SOFTMAX_REGISTERS, Products, multiply_registers
from heddle.kernels.attention.forward.sm80_fiber_config import GROUP, Fiber80Config, softmax_window
from heddle.kernels.attention.forward.sm80_fiber_memory import Memory
from heddle.kernels.attention.forward.sm80_fiber_softmax import Softmax
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Item, kernel

IDLE_REGISTERS = 8


class PlacedMemory(Memory):
    """K and V divided among `wefts` wefts, and Q loaded by wefts of its own."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: Fiber80Config, wefts: int) -> None:
        self.wefts = wefts
        super().__init__(k, problem, config)

    def declare_keys_and_values(self, problem: AttentionProblem) -> None:
        """Declare both in the pool."""
        shape = (self.config.tile_n, problem.head_dim)
        self.keys = self.k.pool("keys", shape, problem.dtype, read_by="all", wefts=(self.wefts, 1))[0]
        self.values = self.k.pool("values", shape, problem.dtype, read_by="all", wefts=(1, self.wefts))[0]

    def load_queries(self, item: Item) -> None:
        """Q, once a tile."""
        self.copy_queries(item)
        self.k.cp_async_wait(pending=0)
        self.give_queries()

    def load_keys(self, item: Item, has_steady: bool) -> None:
        """K block by block."""
        self.load_blocks(item, 0, has_steady)


def spawned(homes: tuple[int, ...], groups: int) -> dict[str, int]:
    """Return the roles and their wefts; those that load K and V begin in the first of `homes`."""
    wefts = {"begin": 1}
    for name in ("keys", "values"):
        gap = (homes[0] - sum(wefts.values())) % GROUP
        wefts |= {f"rest_{name}": gap} if gap else {}
        wefts[name] = len(homes)
    return {**wefts, "queries": GROUP, **{f"softmax{b}": GROUP for b in range(groups)}, "multiply": GROUP}


@kernel
def attention_sm80_fiber_placed(
    k: Builder,
    problem: AttentionProblem,
    config: Fiber80Config,
    items: Mapping[str, list[int]],
    clusters: int,
    homes: tuple[int, ...],
) -> None:
    """As `attention_sm80_fiber`, with K and V in the subpartitions `homes`."""
    k.flops = problem.flops
    k.work_items(dict(items), clusters=clusters, schedule=config.order)
    memory = PlacedMemory(k, problem, config, len(homes))
    products = Products(k, problem, config, memory)
    wefts, steady = spawned(homes, config.groups), any(items["steady"])
    k.set_fiber_num(**wefts)
    for name in wefts:
        if name in ("keys", "values", "queries"):
            with k.role(name, registers=LOAD_REGISTERS, pace=config.pace):
                for item in k.work():
                    if name == "queries":
                        memory.load_queries(item)
                    else:
                        (memory.load_keys if name == "keys" else memory.load_values)(item, steady)
        elif name.startswith("softmax"):
            block = int(name.removeprefix("softmax"))
            with k.role(name, window=softmax_window(problem, config), registers=SOFTMAX_REGISTERS, pace=config.pace):
                online = Softmax(k, problem, config, block, products.channels[block])
                for item in k.work():
                    online.tile(item, any(items["masked"]), any(items["plain"]))
        elif name == "multiply":
            with k.role(name, window=1, registers=multiply_registers(problem, config)):
                for item in k.work():
                    products.tile(item, any(items["one"]), any(items["more"]), any(items["middle"]))
        else:
            with k.role(name, registers=IDLE_REGISTERS):
                pass
