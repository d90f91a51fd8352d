"""The warp of FlashAttention 4 that issues all products: S = Q K^T, and O += P V with P in tensor memory."""

from __future__ import annotations

from heddle.kernels.attention.forward.sm100_fa4_memory import Memory, Tile
from heddle.kernels.attention.forward.sm100_fa4_softmax import first_part
from heddle.kernels.attention.shape import AttentionConfig
from heddle.lang import Builder, Index, Ring


class Products:
    """What the orders for two tiles and for one share."""

    def __init__(self, k: Builder, config: AttentionConfig, memory: Memory) -> None:
        self.k, self.config, self.memory = k, config, memory

    def scores(self, tile: Tile, slot: Ring) -> None:
        """Start S = Q K^T; its completion also means that everything before it is complete."""
        memory = self.memory
        self.k.mma(tile.scores[slot], tile.query[:], memory.block[memory.blocks], accumulate=False)
        self.k.mma_commit(tile.scores_full[slot])

    def values(self, tile: Tile, *, block: Index | None = None, accumulate: bool = True, behind: bool = False) -> None:
        """Start O += P V once three quarters of P are there and O is rescaled, then the rest."""
        k, memory = self.k, self.memory
        values = memory.block[memory.blocks.previous if behind else memory.blocks]
        weights, part = tile.weights[memory.step], first_part(self.config.tile_n)
        tile.weights_full.wait(memory.step)
        k.mma(
            tile.output[:],
            weights.columns(0, part),
            values.part(rows=part),
            first=block,
            accumulate=accumulate,
            transposed=True,
        )
        tile.weights_last.wait(memory.step)
        rest = weights.columns(part, self.config.tile_n - part)
        k.mma(tile.output[:], rest, values.part(row=part), transposed=True)

    def release_block(self) -> None:
        """Give the stage that the ring points to back when the products so far are complete."""
        self.k.mma_commit(self.memory.empty[self.memory.blocks])
        self.memory.blocks.advance()


class PairProducts(Products):
    """Two tiles in turn: values of one block, then scores of the next, tile by tile."""

    def run(self, has: dict[str, bool]) -> None:
        """All work items; the products of scores are one block ahead of those of values."""
        k, memory = self.k, self.memory
        memory.meet()
        for item in k.work():
            for tile in memory.tiles:
                tile.query_full.wait(memory.item)
                if tile.index == 0:
                    memory.full.wait(memory.blocks)
                self.scores(tile, memory.step)
            self.release_block()
            if has["more"]:
                with k.when(item.more):
                    for block in k.range(item.more, name="block"):
                        self.step(block)
            for tile in memory.tiles:
                k.mma_commit(tile.query_empty[memory.item])
            if has["more"]:
                with k.when(item.more):
                    self.last(accumulate=True)
            if has["only"]:
                with k.when(item.only):
                    self.last(accumulate=False)
            memory.item.advance()

    def step(self, block: Index) -> None:
        """Values of one block and scores of the next, first tile first; V lies one stage before K."""
        memory = self.memory
        first, second = memory.tiles
        memory.full.wait(memory.blocks)
        self.values(first, block=block)
        memory.blocks.advance()
        memory.full.wait(memory.blocks)
        self.scores(first, memory.step)
        self.values(second, block=block, behind=True)
        self.k.mma_commit(memory.empty.use(memory.blocks.previous))
        self.scores(second, memory.step)
        self.release_block()
        memory.step.advance()

    def last(self, accumulate: bool) -> None:
        """Values of the last block; O is complete."""
        memory = self.memory
        memory.full.wait(memory.blocks)
        for tile in memory.tiles:
            self.values(tile, accumulate=accumulate)
            self.k.mma_commit(tile.output_full[memory.item])
        self.release_block()
        memory.step.advance()


class SingleProducts(Products):
    """One tile, whose scores of the next block are computed while the softmax works on the last ones."""

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
                        self.next_scores(tile)
                        memory.full.wait(memory.blocks)
                        self.values(tile, block=block)
                        k.mma_commit(tile.values_done.use(None))
                        self.release_block()
                        memory.step.advance()
            k.mma_commit(tile.query_empty[memory.item])
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
        """Scores of the next block, into the other slot."""
        memory = self.memory
        memory.full.wait(memory.blocks)
        self.scores(tile, memory.ahead)
        self.release_block()
        memory.ahead.advance()
