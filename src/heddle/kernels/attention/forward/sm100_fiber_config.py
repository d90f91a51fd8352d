"""Configurations of the FIBER-native attention of B200, and its work items."""

from __future__ import annotations

from dataclasses import dataclass, replace

from heddle.ir.warp_fiber import WINDOW
from heddle.kernels.attention.forward.sm100_fa4_config import ROWS
from heddle.kernels.attention.forward.sm100_fa4_config import work_items as tiles_in_order
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem

GROUP = 4
"""Wefts of a role that computes: one for each quarter of the 128 lanes of tensor memory."""
LANES = 2
"""Scores that are under way at a time: one is multiplied while the other is exponentiated."""
CHUNKS = (8, 16)
"""Columns of scores in registers at a time: up to one step of the product with P, which begins when it is there."""
REGISTER_BYTES, QUAD = 4, 4
OTHER_REGISTERS = 48
"""Registers of a window for roles beside the softmax, row values in the pool, tokens, and the last quad."""
MOST_SOFTMAX_REGISTERS = 68
"""More gives the scheduler no more to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberConfig(AttentionConfig):
    """`groups` tiles of 128 rows a FIBER-thread; `stages` blocks of K and as many of V.

    Two tiles of a step have the same keys; a single one takes its keys in two blocks, `lanes` in turn either way.
    `parts`: groups of softmax wefts a tile, each with its share of the columns. `chunk`: columns of scores that such a
    weft has in registers at a time, of which it holds two. `exp_period`, `exp_share`, `rescaled`: as in FlashAttention
    4, but in all columns.
    """

    parts: int = 1
    chunk: int = 16

    @property
    def lanes(self) -> int:
        """Scores of a step, each with a place of its own in tensor memory."""
        return LANES

    @property
    def keys(self) -> int:
        """Keys of a block of K and V."""
        return self.tile_n * self.groups // LANES

    def label(self) -> str:
        """Return a short name, as in `fiber 256x128 g2 s2 p1x16 poly4/16 rescale0 static`."""
        cut = f"p{self.parts}x{self.chunk} poly{self.exp_share}/{self.exp_period} rescale{self.rescaled}"
        return f"{AttentionConfig.label(self).removesuffix(self.order)}{cut} {self.order}"


def work_items(problem: AttentionProblem, config: FiberConfig, clusters: int) -> dict[str, list[int]]:
    """Return the work items of FlashAttention 4, with what the rolling order needs to know of an item's neighbours.

    `one`: exactly one block after the first, `two`: two or more, `inner` of them neither first nor last of these.
    `first`: nothing runs before the item, with `first_only` and `first_more` whether it has one block or more; `next`
    and its variants say the same of the item that follows.
    """
    rolls = config.order == "static"
    items = _dealt(problem, config, clusters) if rolls and problem.causal else tiles_in_order(problem, config)
    more = items["more"]
    count = len(more)
    first = [int(not rolls or i < clusters) for i in range(count)]
    following = [more[i + clusters] if rolls and i + clusters < count else -1 for i in range(count)]
    return {
        **items,
        "one": [int(m == 1) for m in more],
        "two": [int(m > 1) for m in more],
        "inner": [max(m - 2, 0) for m in more],
        "first_only": [int(f and m == 0) for f, m in zip(first, more, strict=True)],
        "first_more": [int(f and m > 0) for f, m in zip(first, more, strict=True)],
        "next": [int(m >= 0) for m in following],
        "next_only": [int(m == 0) for m in following],
        "next_more": [int(m > 0) for m in following],
    }


def _dealt(problem: AttentionProblem, config: FiberConfig, clusters: int) -> dict[str, list[int]]:
    """Return items of unequal length in rounds, one for each FIBER-thread, dealt out so that all get nearly equal sums.

    Each round is a run of the order that shares keys in L2. Dealing begins with the last round, which only some get,
    and gives the longest item of a round to the one that has least so far.
    """
    items = tiles_in_order(problem, replace(config, order="launch"))
    blocks = [more + 1 for more in items["more"]]
    order, sums = list(range(len(blocks))), [0] * clusters
    for begin in reversed(range(0, len(blocks), clusters)):
        round_ = range(begin, min(begin + clusters, len(blocks)))
        longest_first = sorted(round_, key=lambda item: -blocks[item])
        least_first = sorted(range(len(round_)), key=lambda thread: sums[thread])
        for item, thread in zip(longest_first, least_first, strict=True):
            order[begin + thread] = item
            sums[thread] += blocks[item]
    return {name: [values[i] for i in order] for name, values in items.items()}


def shared_bytes(problem: AttentionProblem, config: FiberConfig) -> int:
    """Return the shared memory of the tiles: Q, up to 128 columns of O of one, and the stages of K and V."""
    rows = config.tile_m + 2 * config.stages * config.keys
    return (rows * problem.head_dim + ROWS * min(problem.head_dim, ROWS)) * problem.element_bytes


def softmax_registers(problem: AttentionProblem, config: FiberConfig) -> int:
    """Return the registers of a softmax role: two chunks, row values and temporaries, as far as a window has room.

    A window holds one tile of Q (of a single tile the other one does), the weights, and the roles beside the softmax.
    """
    query = problem.head_dim * problem.element_bytes // REGISTER_BYTES if config.groups > 1 else 0
    weights = config.tile_n * problem.element_bytes // REGISTER_BYTES
    left = (WINDOW - query - weights - OTHER_REGISTERS) // config.parts
    return min(MOST_SOFTMAX_REGISTERS, left // QUAD * QUAD)
