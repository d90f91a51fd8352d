"""The correction warps of FlashAttention 4: they rescale O, and bring it to shared memory at the end."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.forward.sm100_fa4_config import ROWS
from heddle.kernels.attention.forward.sm100_fa4_memory import Memory, Tile
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LEAST_SUM
from heddle.lang import Builder, Item, RegisterHandle

CORRECTION_COLUMNS = 16
"""Columns of O that the correction group has in registers at a time."""


class Correction:
    """The role's code for any number of tiles; `late`: those that are rescaled in masked blocks."""

    def __init__(self, k: Builder, problem: AttentionProblem, memory: Memory, late: Sequence[bool]) -> None:
        self.k, self.problem, self.memory, self.late = k, problem, memory, tuple(late)
        self.released_late = memory.tiles[1] if len(memory.tiles) > 1 else None
        self.part = k.registers("part", (ROWS, CORRECTION_COLUMNS), "fp32", warps=(GROUP_WARPS, 1))
        self.factor: RegisterHandle = k.registers("row_factor", (ROWS, 1), "fp32", warps=(GROUP_WARPS, 1))

    def run(self, has: dict[str, bool]) -> None:
        """All work items; O needs no rescaling before its first product."""
        k, memory = self.k, self.memory
        memory.meet()
        self.pass_on()
        for item in k.work():
            for tile in memory.tiles:
                tile.stats_full.wait(memory.stats)
                if tile is not self.released_late:
                    tile.stats_empty.arrive(memory.stats)
            if has["more"]:
                memory.stats.advance()
                self.steps(item, has)
            if self.released_late:
                self.released_late.stats_empty.arrive(memory.stats)
            if not has["more"]:
                memory.stats.advance()
            for tile in memory.tiles:
                self.finish(tile, item)
            memory.step.advance()
            memory.stats.advance()
            memory.item.advance()

    def pass_on(self) -> None:
        """Let the first products of all tiles begin."""
        for tile in self.memory.tiles:
            tile.weights_full.arrive(self.memory.step)
        self.memory.step.advance()

    def steps(self, item: Item, has: dict[str, bool]) -> None:
        """All blocks but the first; those with masks rescale tiles that had no key before."""
        k, count = self.k, len(self.memory.tiles)
        policies = {"masked": self.late, "rescaled": (True,) * count, "plain": (False,) * count}
        for name, rescales in policies.items():
            if has[name]:
                with k.when(getattr(item, name)):
                    for _ in k.range(getattr(item, name), name=name):
                        self.step(rescales)

    def step(self, rescales: Sequence[bool]) -> None:
        """Read the row factors of a block and rescale where the policy says so; else they only pass the check.

        A tile's factors may be replaced once those of the other tile were used (a single tile's at once).
        """
        k, memory = self.k, self.memory
        for tile in memory.tiles:
            tile.stats_full.wait(memory.stats)
            memory.get_factor(tile, self.factor)
            k.elementwise("check", self.factor, self.factor)
            if memory.early:
                tile.values_done.wait(memory.values)
            if rescales[tile.index]:
                self.rescale(tile)
            tile.weights_full.arrive(memory.step)
            memory.tiles[len(memory.tiles) - 1 - tile.index].stats_empty.arrive(memory.stats)
        memory.step.advance()
        memory.stats.advance()
        if memory.early:
            memory.values.advance()

    def rescale(self, tile: Tile) -> None:
        """Multiply O by the row factors, in tensor memory."""
        k, width = self.k, self.problem.head_dim
        for col in range(0, width, CORRECTION_COLUMNS):
            box = tile.output[:].columns(col, CORRECTION_COLUMNS)
            k.load(self.part, box)
            k.elementwise("mul", self.part, self.part, self.factor)
            k.store(box, self.part, wait=col + CORRECTION_COLUMNS == width)

    def take_sums(self, tile: Tile) -> None:
        """Make the sums factors, and wait for O."""
        k, memory = self.k, self.memory
        tile.stats_full.wait(memory.stats)
        memory.get_factor(tile, self.factor)
        if memory.several:
            tile.stats_empty.arrive(memory.stats)
        k.elementwise("max", self.factor, self.factor, scalars=(LEAST_SUM,))
        k.elementwise("reciprocal", self.factor, self.factor)
        tile.output_full.wait(memory.item)

    def finish(self, tile: Tile, item: Item) -> None:
        """Divide O by the sums and put it into shared memory; the next item's first product may then overwrite it."""
        k, memory = self.k, self.memory
        self.take_sums(tile)
        tile.sent.wait(memory.item, flip=True)
        for col in range(0, self.problem.head_dim, CORRECTION_COLUMNS):
            k.load(self.part, tile.output[:].columns(col, CORRECTION_COLUMNS))
            k.elementwise("mul", self.part, self.part, self.factor)
            k.store(tile.out[:].part(col=col, cols=CORRECTION_COLUMNS), self.part)
        tile.weights_full.arrive(memory.step)
        k.fence()
        tile.staged.arrive(memory.item)
