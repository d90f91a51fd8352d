"""The wefts of the FIBER-native attention of B200 that issue all products, in one order."""

from __future__ import annotations

from heddle.kernels.attention.forward.sm100_fiber_memory import Lane, Memory
from heddle.lang import Builder, Item


class Products:
    """S = Q K^T of the next step, then O += P V of this one, lane by lane; the order does not end with an item.

    Each of the two waits for the softmax of its lane alone, so that one lane multiplies while the other exponentiates.
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
        for lane in self.memory.lanes:
            self.next_scores(lane, last)
            if lane.ends:
                self.memory.keys.release_before(lane.tile.query)

    def many(self, item: Item, inner: bool) -> None:
        """Two or more steps after the first."""
        k = self.k
        self.step(release=False, first=True)
        if inner:
            with k.when(item.inner):
                for _ in k.range(item.inner, name="block"):
                    self.step()
        self.step(last=True)

    def step(self, *, last: bool = False, release: bool = True, first: bool | None = None) -> None:
        """Scores of a step and values of the one before it.

        `last`: of the item, so that its Q is given back. `release`: give back the values of the step before that one.
        """
        overwrites = not release if first is None else first
        for lane in self.memory.lanes:
            self.next_scores(lane, last)
            self.add(lane, accumulate=not overwrites, release=release)
            if lane.ends:
                self.memory.keys.release_before(lane.tile.query)

    def end(self, item: Item, has: dict[str, bool], accumulate: bool) -> None:
        """The last values of an item, each behind the first scores of the next item."""
        k, memory = self.k, self.memory
        if accumulate:  # here already: the next item's first keys come behind these values
            memory.values.release_before(memory.lanes[-1].weights[-1])
        for lane in memory.lanes:
            for name in ("next_only", "next_more"):
                if has[name]:
                    with k.when(getattr(item, name)):
                        self.next_scores(lane, last=name == "next_only")
            self.add(lane, accumulate, release=False)
            if lane.ends and has["next"]:
                with k.when(item.next):
                    memory.keys.release_before(lane.tile.query)
        memory.values.release_before(memory.lanes[-1].weights[-1])

    def next_scores(self, lane: Lane, last: bool) -> None:
        """S = Q K^T, once all of the last S has been read; tokens tell the softmax that this is the next S."""
        k, keys, lanes = self.k, self.memory.keys, self.memory.lanes
        if lane.takes:
            keys.wait()
        k.mma(lane.scores[:], lane.tile.query, keys.current, accumulate=False)
        k.set_busy_bit(lane.scores[:], "full")
        if last and all(other.tile is not lane.tile for other in lanes[lane.index + 1 :]):
            k.set_busy_bit(lane.tile.query, "empty")
        for token in lane.issued:
            token.give()
        if lane.ends:
            keys.ring.advance()

    def add(self, lane: Lane, accumulate: bool, release: bool) -> None:
        """O += P V, as soon as O is rescaled, and of P what a step needs is there.

        `release`: in front of it, give back what the step before has left; other blocks are given back anyway.
        """
        k, values, before = self.k, self.memory.values, self.memory.lanes[lane.index - 1]
        if lane.takes:
            if release or lane.index:
                values.release_before(before.weights[-1])
            values.wait()
        lane.tile.ready.take()
        earlier = accumulate or (before.tile is lane.tile and lane.index > 0)
        for part, weights in enumerate(lane.weights):
            rows = values.current.part(row=part * lane.width, rows=lane.width)
            k.mma(lane.tile.output[:], weights, rows, accumulate=earlier or part > 0, transposed=True)
            k.set_busy_bit(weights, "empty")
        lane.tile.added.give()
        if lane.ends:
            values.ring.advance()
