"""Decoding, first launch: attention of the query heads of a key and value head over a part of its keys.

The tile of FlashAttention 2 with 64 rows, of which as many are used as query heads share keys; more than 64 take
several tiles, each of which goes through the keys. A CTA writes its O in
fp32, divided by its own sum, and for each row the base-2 logarithm of that sum. With one split it writes O itself.
"""

from __future__ import annotations

from itertools import product

from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.kernels.attention.forward.sm80_fa2 import REGISTERS, Tile
from heddle.kernels.attention.shape import AttentionConfig
from heddle.lang import Builder, Item, kernel

Items = dict[str, list[int]]


@kernel
def decode_split(k: Builder, problem: DecodeProblem, config: AttentionConfig, items: Items) -> None:
    """Go through the blocks of a split from the last to the first."""
    _go_through(k, problem, SplitTile(k, problem, config), items)


@kernel
def decode_whole(k: Builder, problem: DecodeProblem, config: AttentionConfig, items: Items) -> None:
    """The same through all keys."""
    _go_through(k, problem, Tile(k, problem.packed, config), items)


def _go_through(k: Builder, problem: DecodeProblem, tile: Tile, items: Items) -> None:
    k.flops = problem.packed.flops
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    with k.role("worker", warps=tile.config.groups, registers=REGISTERS):
        for item in k.work():
            tile.start(item)
            tile.score(item, item.last, edge=True)
            if any(items["plain"]):
                with k.when(item.plain):
                    tile.steps(item, "plain")
            tile.finish_block()
            tile.store(item)


class SplitTile(Tile):
    """A tile that writes what it has summed up, and the logarithm of the sum."""

    def __init__(self, k: Builder, problem: DecodeProblem, config: AttentionConfig) -> None:
        self.splits = problem.num_splits
        super().__init__(k, problem.packed, config)

    def results(self, shape: tuple[int, int, int]) -> None:
        """Declare the partial O, of all splits side by side in a row, and the logarithms."""
        k, (planes, rows, d) = self.k, shape
        self.o_global = k.tensor("O_partial", (planes, rows, self.splits * d), "fp32", role="output")
        self.logs_global = k.tensor("LSE_partial", (planes, rows, self.splits), "fp32", role="output")
        self.lse = k.registers("lse", (self.config.tile_m, 1), "fp32", warps=(self.config.groups, 1))

    def store(self, item: Item) -> None:
        """Divide O by the sums and store both."""
        k, softmax = self.k, self.softmax
        softmax.finish()
        softmax.rescale(self.output)
        k.elementwise("log2", self.lse, softmax.total)
        k.elementwise("add", self.lse, self.lse, softmax.scaled)
        k.store(self.logs_global[item.q_plane, item.row, item.split], self.lse)
        k.store(self.o_global[item.q_plane, item.row, item.part], self.output)


def split_items(problem: DecodeProblem, tile_rows: int) -> Items:
    """Return one work item a CTA in the order of the grid: tiles of query heads fastest, then splits.

    `last`: first key of its last block; `first`: of its first; `plain`, `more`: blocks but the last.
    """
    keys, each = problem.keys, problem.blocks_per_split
    names = ("q_plane", "kv_plane", "row", "split", "part", "first", "last", "plain", "more", "edge", "masked")
    items: Items = {name: [] for name in names}
    tiles = range(0, problem.group, tile_rows)
    for plane, split, row in product(range(problem.planes), range(problem.num_splits), tiles):
        first, end = split * each, min((split + 1) * each, problem.blocks)
        last = (end - 1) * keys
        more = end - first - 1
        values = (plane, plane, row, split, split * problem.head_dim, first * keys, last, more, more, last, 0)
        for name, value in zip(items, values, strict=True):
            items[name].append(value)
    return items
