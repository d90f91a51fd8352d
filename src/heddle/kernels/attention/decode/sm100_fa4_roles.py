"""What the roles of FlashAttention 4 do otherwise while decoding: one tile, in turn, whose O leaves from registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.forward.sm100_fa4_config import ROWS
from heddle.kernels.attention.forward.sm100_fa4_correction import CORRECTION_COLUMNS, Correction
from heddle.kernels.attention.forward.sm100_fa4_memory import Memory, Tile
from heddle.kernels.attention.forward.sm100_fa4_products import Products
from heddle.kernels.attention.forward.sm100_fa4_softmax import Softmax
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.lang import Builder, Item

if TYPE_CHECKING:
    from heddle.kernels.attention.decode.sm100_fa4 import TileMemory


def load(k: Builder, config: AttentionConfig, memory: Memory, more: bool) -> None:
    """Load Q, and K and V block by block from the last of the split to its first; of the stages none is used yet."""
    memory.meet()
    for item in k.work():
        memory.load_block(memory.k_global, item, item.last, unused=True)
        memory.load_query(memory.tiles[0], item)
        memory.load_block(memory.v_global, item, item.last, unused=True)
        if more:
            with k.when(item.more):
                for block in k.range(item.more, name="block"):
                    row = item.last - config.tile_n + block * -config.tile_n
                    memory.load_block(memory.k_global, item, row)
                    memory.load_block(memory.v_global, item, row)
        memory.item.advance()


class InTurnProducts(Products):
    """One tile: values of a block, then scores of the next."""

    def run(self, has: dict[str, bool]) -> None:
        """All work items."""
        k, memory = self.k, self.memory
        tile = memory.tiles[0]
        memory.meet()
        for item in k.work():
            tile.query_full.wait(memory.item)
            self.next_scores(tile)
            if has["more"]:
                with k.when(item.more):
                    for block in k.range(item.more, name="block"):
                        memory.full.wait(memory.blocks)
                        self.values(tile, block=block)
                        self.release_block()
                        self.next_scores(tile)
                        memory.step.advance()
            memory.full.wait(memory.blocks)
            if has["more"]:
                with k.when(item.more):
                    self.values(tile)
            if has["only"]:
                with k.when(item.only):
                    self.values(tile, accumulate=False)
            k.mma_commit(tile.output_full[memory.item])
            self.release_block()
            memory.step.advance()
            memory.item.advance()

    def next_scores(self, tile: Tile) -> None:
        """Scores of the next block, in the place of P."""
        self.memory.full.wait(self.memory.blocks)
        self.scores(tile, self.memory.step)
        self.release_block()


class SplitSoftmax(Softmax):
    """The softmax, which also writes the logarithms of sums where there are several splits."""

    def __init__(
        self, k: Builder, problem: AttentionProblem, config: AttentionConfig, memory: TileMemory, tile: Tile, late: bool
    ) -> None:
        super().__init__(k, problem, config, memory, tile, late)
        self.logs = memory.logs_global
        if self.logs is not None:
            self.lse = k.registers("lse", (ROWS, 1), "fp32", warps=(GROUP_WARPS, 1))

    def store_logs(self, item: Item) -> None:
        """Store the base-2 logarithm of each row's sum; padding rows lie outside the tensor."""
        k = self.k
        if self.logs is not None:
            k.elementwise("log2", self.lse, self.total)
            k.elementwise("add", self.lse, self.lse, self.scaled)
            k.store(self.logs[item.q_plane, item.row, item.split], self.lse)


class SplitCorrection(Correction):
    """The correction warps, which write O straight from registers."""

    def __init__(self, k: Builder, problem: AttentionProblem, memory: TileMemory) -> None:
        super().__init__(k, problem, memory, late=(False,))
        self.written = memory

    def finish(self, tile: Tile, item: Item) -> None:
        """Divide O by the sums and store it; no other item's products wait for that."""
        k = self.k
        self.take_sums(tile)
        for col in range(0, self.problem.head_dim, CORRECTION_COLUMNS):
            k.load(self.part, tile.output[:].columns(col, CORRECTION_COLUMNS))
            k.elementwise("mul", self.part, self.part, self.factor)
            k.store(self.written.output(item, col), self.part)
