"""The wefts of the FIBER-native attention of B200 that rescale O, and bring it to shared memory at the end."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.kernels.attention.forward.sm100_fa4_config import ROWS
from heddle.kernels.attention.forward.sm100_fiber_config import GROUP
from heddle.kernels.attention.forward.sm100_fiber_memory import Memory, Tile
from heddle.kernels.attention.softmax import LEAST_SUM
from heddle.lang import Builder, Item

COLUMNS = 16
"""Columns of O in registers at a time."""


class Correction:
    """Takes turns with the products: `added` says that their last has been issued, `ready` gives O back.

    The bits of O's columns say when a product is over.
    """

    def __init__(self, k: Builder, memory: Memory, late: Sequence[bool]) -> None:
        self.k, self.memory, self.late = k, memory, tuple(late)
        self.part = k.registers("part", (ROWS, COLUMNS), "fp32", warps=(GROUP, 1))
        self.factor = k.registers("row_factor", (ROWS, 1), "fp32", warps=(GROUP, 1))
        self.seen = k.registers("row_seen", (ROWS, 1), "fp32", warps=(GROUP, 1))

    def run(self, has: dict[str, bool]) -> None:
        """All work items; O needs no rescaling before its first product."""
        k = self.k
        for tile in self.memory.tiles:
            tile.ready.give()
        for item in k.work():
            self.steps(item, has)
            for tile in self.memory.tiles:
                self.finish(tile, item, has["next"])

    def steps(self, item: Item, has: dict[str, bool]) -> None:
        """All blocks but a tile's first; those with masks rescale tiles that had no key before."""
        k, lanes, count = self.k, self.memory.lanes, len(self.memory.tiles)
        for lane in lanes[count:]:  # of the first step
            self.step(lane.tile, rescales=False)
        policies = {"masked": self.late, "rescaled": (True,) * count, "plain": (False,) * count}
        for name, rescales in policies.items():
            if has[name]:
                with k.when(getattr(item, name)):
                    for _ in k.range(getattr(item, name), name=name):
                        for lane in lanes:
                            self.step(lane.tile, rescales[lane.tile.index])

    def step(self, tile: Tile, rescales: bool) -> None:
        """Look at the row factors of a block, and rescale where the policy says so."""
        k = self.k
        assert tile.factor is not None  # there are blocks that may need it
        k.elementwise("check", self.factor, tile.factor)
        k.set_busy_bit(tile.factor, "empty")
        tile.added.take()
        if rescales:
            for col in range(0, self.memory.d, COLUMNS):
                box = tile.output[:].columns(col, COLUMNS)
                k.load(self.part, box)
                k.elementwise("mul", self.part, self.part, self.factor)
                k.store(box, self.part)
        tile.ready.give()

    def finish(self, tile: Tile, item: Item, follows: bool) -> None:
        """Divide O by the sums and put it into shared memory; the next item's first product may then overwrite it."""
        k, memory = self.k, self.memory
        self.sum(tile)
        tile.added.take()
        width = memory.output.tile.cols
        for col in range(0, memory.d, COLUMNS):
            if col % width == 0:
                memory.output_empty.wait(memory.output_ring, flip=True)
            k.load(self.part, tile.output[:].columns(col, COLUMNS))
            k.elementwise("mul", self.part, self.part, self.factor)
            k.store(memory.output[:].part(col=col % width, cols=COLUMNS), self.part)
            if follows and col + COLUMNS == memory.d:
                with k.when(item.next):
                    tile.ready.give()
            if (col + COLUMNS) % width == 0:
                k.fence()
                memory.output_full.arrive(memory.output_ring)
                memory.output_ring.advance()

    def sum(self, tile: Tile) -> None:
        """The reciprocal of the sum over all parts."""
        k = self.k
        for part, given in enumerate(tile.sums):
            k.elementwise("copy", self.seen if part else self.factor, given)
            k.set_busy_bit(given, "empty")
            if part:
                k.elementwise("add", self.factor, self.factor, self.seen)
        k.elementwise("max", self.factor, self.factor, scalars=(LEAST_SUM,))
        k.elementwise("reciprocal", self.factor, self.factor)
