"""The wefts of the FIBER-native attention of B200 that issue all products, in one order."""

from __future__ import annotations

from heddle.kernels.attention.sm100_fiber_memory import Memory, Tile
from heddle.lang import Builder, Item


class Products:
    """S = Q K^T of the next block, then O += P V of this one, tile by tile; the order does not end with an item.

    Each of the two waits for the softmax of its tile alone, so that one tile multiplies while the other exponentiates.
    """

    def __init__(self, k: Builder, memory: Memory) -> None:
        self.k, self.memory = k, memory

    def run(self, has: dict[str, bool]) -> None:
        """All work items."""
        k = self.k
        for item in k.work():
            for name in ("first_only", "first_more"):
                if has[name]:
                    with k.when(getattr(item, name)):
                        self.begin(last=name == "first_only")
            if has["one"]:
                with k.when(item.one):
                    self.step(last=True, release=False)
            if has["two"]:
                with k.when(item.two):
                    self.many(item, has["inner"])
            if has["more"]:
                with k.when(item.more):
                    self.end(item, has, accumulate=True)
            if has["only"]:
                with k.when(item.only):
                    self.end(item, has, accumulate=False)

    def begin(self, last: bool) -> None:
        """The first scores of all."""
        for tile in self.memory.tiles:
            self.first_scores(tile, last)

    def many(self, item: Item, inner: bool) -> None:
        """Two or more blocks after the first."""
        k = self.k
        self.step(release=False, first=True)
        if inner:
            with k.when(item.inner):
                for _ in k.range(item.inner, name="block"):
                    self.step()
        self.step(last=True)

    def step(self, *, last: bool = False, release: bool = True, first: bool | None = None) -> None:
        """Scores of a block and values of the one before it.

        `last`: of the item, so that its Q is given back. `release`: give back the values of the block before that one.
        """
        overwrites = not release if first is None else first
        memory = self.memory
        memory.keys.wait()
        for tile in memory.tiles:
            self.scores(tile, last)
            if tile.index == 0:
                if release:
                    memory.values.release(memory.tiles[-1].weights[-1])
                memory.values.wait()
            else:
                memory.keys.ring.advance()
            self.add(tile, accumulate=not overwrites)
        memory.keys.release(memory.tiles[-1].query)
        memory.values.ring.advance()

    def end(self, item: Item, has: dict[str, bool], accumulate: bool) -> None:
        """The last values of an item, each behind the first scores of the next item's tile."""
        k, memory = self.k, self.memory
        for tile in memory.tiles:
            for name in ("next_only", "next_more"):
                if has[name]:
                    with k.when(getattr(item, name)):
                        self.first_scores(tile, last=name == "next_only")
            if tile.index == 0:
                if accumulate:
                    memory.values.release(memory.tiles[-1].weights[-1])
                memory.values.wait()
            self.add(tile, accumulate)
        memory.values.ring.advance()
        memory.values.release(memory.tiles[-1].weights[-1])

    def first_scores(self, tile: Tile, last: bool) -> None:
        """Scores of an item's first block; the block is given back behind the last tile's."""
        memory = self.memory
        if tile.index == 0:
            memory.keys.wait()
        self.scores(tile, last)
        if tile is memory.tiles[-1]:
            memory.keys.ring.advance()
            memory.keys.release(tile.query)

    def scores(self, tile: Tile, last: bool) -> None:
        """S = Q K^T, once all of the last S has been read; tokens tell the softmax that this is the next S."""
        k = self.k
        k.mma(tile.scores[:], tile.query, self.memory.keys.current, accumulate=False)
        k.set_busy_bit(tile.scores[:], "full")
        if last:
            k.set_busy_bit(tile.query, "empty")
        for token in tile.issued:
            token.give()

    def add(self, tile: Tile, accumulate: bool) -> None:
        """O += P V, as soon as O is rescaled, and of P what a step needs is there."""
        k = self.k
        tile.ready.take()
        for part, weights in enumerate(tile.weights):
            rows = self.memory.values.current.part(row=part * tile.width, rows=tile.width)
            k.mma(tile.output[:], weights, rows, accumulate=accumulate or part > 0, transposed=True)
            k.set_busy_bit(weights, "empty")
        tile.added.give()
