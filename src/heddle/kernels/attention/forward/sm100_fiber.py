"""Attention forward on B200 with FIBER: roles of wefts around tensor memory, weights and queries in shared registers.

Two tiles of 128 rows a FIBER-thread, 32 rows in each subpartition, where everything of a row stays. Scores S and
outputs O of both fill tensor memory. Four wefts issue all products, Q K^T of a tile's next block before P V of its
last; the first operands, Q and P, come from the pool, so shared memory feeds K and V alone. Wefts of a tile's softmax
read S twice, for its maximum and for the exponentials, and give its columns back as they read them: the next scores
need not wait for the values, as they do where P lies in the columns of S. One group rescales O where the policy says
so, divides it by the sums, and puts it into shared memory while the next item's scores are under way.
"""

from __future__ import annotations

from heddle.kernels.attention.forward.sm100_fa4_config import late_tiles
from heddle.kernels.attention.forward.sm100_fiber_config import GROUP, FiberConfig, softmax_registers
from heddle.kernels.attention.forward.sm100_fiber_correction import Correction
from heddle.kernels.attention.forward.sm100_fiber_memory import Memory
from heddle.kernels.attention.forward.sm100_fiber_products import Products
from heddle.kernels.attention.forward.sm100_fiber_softmax import Softmax
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, kernel

COPY_REGISTERS = 4
"""Registers of a role that copies, or issues products."""
CORRECTION_REGISTERS = 28
"""The same for rescaling O: a part of it, row factors, and what is converted and stored."""


@kernel
def attention_fiber(
    k: Builder, problem: AttentionProblem, config: FiberConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """Every hand-over between wefts is a pool tensor, columns of tensor memory or an mbarrier."""
    k.flops = problem.flops
    k.work_items(items, clusters=clusters, schedule=config.order)
    has = {name: any(values) for name, values in items.items()}
    memory = Memory(k, problem, config, has["more"])
    late = late_tiles(problem, config)
    softmax = {
        f"softmax{tile.index}_{part}": Softmax(k, problem, config, memory.lanes_of(tile), part)
        for tile in memory.tiles
        for part in range(config.parts)
    }
    products, correction = Products(k, memory), Correction(k, memory, late)
    queries = {f"query{tile.index}": tile for tile in memory.tiles}
    groups = dict.fromkeys(("products", *softmax, "correction", *queries), GROUP)

    k.set_fiber_num(load=1, store=1, **groups)

    with k.role("load", window=0, registers=COPY_REGISTERS):
        for item in k.work():
            memory.load(item, has["more"])

    with k.role("store", window=0, registers=COPY_REGISTERS):
        for item in k.work():
            memory.store(item)

    with k.role("products", window=0, registers=COPY_REGISTERS):
        products.run(has)

    for name, part in softmax.items():
        with k.role(name, window=part.tile.index, registers=softmax_registers(problem, config)):
            for item in k.work():
                part.run(item, has, late[part.tile.index])

    with k.role("correction", window=1, registers=CORRECTION_REGISTERS):
        correction.run(has)

    for name, tile in queries.items():
        with k.role(name, window=1 - tile.index, registers=COPY_REGISTERS):
            for _ in k.work():
                memory.fragments(tile)
