"""Attention forward on H100 with FIBER: scores, softmax and values in wefts of their own, joined by shared registers.

A FIBER-thread has blocks of 64 rows of Q, 16 in each subpartition, where everything of a row stays. One group of four
wefts multiplies Q K^T: the sum grows in registers of its own, and the last step of the chain writes the pool. For each
block four wefts exponentiate: they read the scores twice, give them back, and write the weights into the pool as
fragments, with the factor by which the block's output has to be multiplied. Four others multiply P V into registers
that nobody else touches, so they multiply by the factor themselves. Scores never pass through shared memory.

Lockstep instructions of several groups must reach the matrix units in one order in all subpartitions: the scores of a
block, the values of the same block one step of keys before, the scores of the next block. Turns in the pool keep it.
The order does not end with a tile: the first scores of the next one are under way while this one's output is written.
"""

from __future__ import annotations

from heddle.kernels.attention.forward.sm90_fiber_config import FiberConfig, softmax_window, values_window
from heddle.kernels.attention.forward.sm90_fiber_literal import LiteralProducts, LiteralSoftmax
from heddle.kernels.attention.forward.sm90_fiber_memory import GROUP, Memory
from heddle.kernels.attention.forward.sm90_fiber_phased import PhasedProducts
from heddle.kernels.attention.forward.sm90_fiber_products import Products
from heddle.kernels.attention.forward.sm90_fiber_softmax import Softmax
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, kernel

COPY_REGISTERS = 4
"""Registers of a role that copies."""
TURN_REGISTERS = 4
"""Registers of the role that makes scores, beside its tile."""
STORE_REGISTERS = 10
"""Registers of a role that adds up values, beside its tile: for the factor, and for O on its way out."""
SOFTMAX_REGISTERS = 18
"""Registers of a role that exponentiates: maximum, sum and their like, and two chunks."""
LITERAL_REGISTERS = 24
"""The same where scores are loaded and weights stored: addresses and what is packed."""


@kernel
def attention_fiber(
    k: Builder, problem: AttentionProblem, config: FiberConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """Persistent over the tiles of Q; every hand-over between wefts is a pool tensor or an mbarrier."""
    memory = _begin(k, problem, config, items, clusters)
    products = Products(k, problem, config, memory)
    more, masked, plain = (any(items[name]) for name in ("more", "masked", "plain"))
    fragments = {"fragments": GROUP} if config.pooled else {}
    k.set_fiber_num(load=1, store=1, scores=GROUP, **fragments, **_per_block(config))

    _copies(k, memory, more)
    with k.role("scores", window=0, registers=config.tile_n // 2 + TURN_REGISTERS):
        for item in k.work():
            products.score(item, more)
        products.turns.close()
    if config.pooled:
        with k.role("fragments", window=1, registers=COPY_REGISTERS):
            for _ in k.work():
                products.fragments()
    for b in range(config.groups):
        with k.role(f"softmax{b}", window=softmax_window(problem, b), registers=SOFTMAX_REGISTERS):
            softmax = Softmax(k, problem, config, b, (products.scores[b], products.weights[b], products.factors[b]))
            for item in k.work():
                softmax.tile(item, masked, plain)
        with k.role(f"values{b}", window=values_window(problem, b), registers=problem.head_dim // 2 + STORE_REGISTERS):
            products.turns.open(b)
            for item in k.work():
                products.value(item, b, more)


@kernel
def attention_fiber_phased(
    k: Builder, problem: AttentionProblem, config: FiberConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """The same roles ordered by barriers, for machines without full and empty bits."""
    memory = _begin(k, problem, config, items, clusters)
    products = PhasedProducts(k, problem, config, memory)
    more, masked, plain = (any(items[name]) for name in ("more", "masked", "plain"))
    k.set_fiber_num(load=1, store=1, scores=GROUP, **_per_block(config))

    _copies(k, memory, more)
    with k.role("scores", window=0, registers=TURN_REGISTERS):
        for item in k.work():
            products.score(item)
    for b in range(config.groups):
        with k.role(f"softmax{b}", window=softmax_window(problem, b), registers=SOFTMAX_REGISTERS):
            softmax = Softmax(k, problem, config, b, (products.scores[b], products.weights[b], products.factors[b]))
            for item in k.work():
                softmax.tile(item, masked, plain)
        with k.role(f"values{b}", window=values_window(problem, b), registers=problem.head_dim // 2 + STORE_REGISTERS):
            for item in k.work():
                products.value(item, b, more)


@kernel
def attention_fiber_literal(
    k: Builder, problem: AttentionProblem, config: FiberConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """The same roles with all hand-overs through shared memory, for machines on which wefts share no registers."""
    memory = _begin(k, problem, config, items, clusters)
    products = LiteralProducts(k, problem, config, memory)
    more, masked, plain = (any(items[name]) for name in ("more", "masked", "plain"))
    k.set_fiber_num(load=1, store=1, scores=GROUP, **_per_block(config))

    _copies(k, memory, more)
    scores = config.tile_n // 2
    with k.role("scores", window=0, registers=config.groups * scores + LITERAL_REGISTERS):
        for item in k.work():
            products.score(item)
    for b in range(config.groups):
        with k.role(f"softmax{b}", window=softmax_window(problem, b), registers=scores + LITERAL_REGISTERS):
            softmax = LiteralSoftmax(k, problem, config, b, products)
            for item in k.work():
                softmax.tile(item, masked, plain)
        with k.role(
            f"values{b}", window=values_window(problem, b), registers=problem.head_dim // 2 + 2 * STORE_REGISTERS
        ):
            for item in k.work():
                products.value(item, b, more)


def _begin(
    k: Builder, problem: AttentionProblem, config: FiberConfig, items: dict[str, list[int]], clusters: int
) -> Memory:
    k.flops, k.cluster_size = problem.flops, config.cluster
    k.work_items(items, clusters=clusters, schedule=config.order)
    return Memory(k, problem, config)


def _per_block(config: FiberConfig) -> dict[str, int]:
    """Wefts of the roles that each block has."""
    return {f"{name}{b}": GROUP for b in range(config.groups) for name in ("softmax", "values")}


def _copies(k: Builder, memory: Memory, more: bool) -> None:
    """The two wefts that copy."""
    with k.role("load", window=1, registers=COPY_REGISTERS):
        memory.meet()
        for item in k.work():
            memory.load(item, more)
        memory.part()
    with k.role("store", window=1, registers=COPY_REGISTERS):
        for item in k.work():
            memory.store(item)
