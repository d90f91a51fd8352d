"""The first release of FlashAttention 3 (July 2024), whose times its paper shows: what it did otherwise.

O is rescaled before a turn (in the source in it, but ptxas 12.4 and 13.0 put it before); the groups take turns in the
first block too, and each waits for K and V itself; the wait for the store of O, on which the producer's next loads
depend, comes behind the first product of the next tile; the next tile is asked for after the store. With 8-bit types a
group's turn lasts until its products have ended (the values of one block and the scores of the next), in the first two
blocks as much longer as ptxas 12.4 makes it; P passes through byte permutes, in registers of the scores.
Source: github.com/Dao-AILab/flash-attention, hopper/ at 7f67966 (16-bit types, 74b0761 for the order of causal tiles)
and 5018ac6 (8-bit types).
"""

from __future__ import annotations

from collections.abc import Mapping

from heddle.kernels.attention.forward.sm90_fa3_config import transposes
from heddle.kernels.attention.forward.sm90_fa3_consumer import PORTION, Consumer
from heddle.kernels.attention.forward.sm90_fa3_memory import Memory
from heddle.kernels.attention.forward.sm90_fa3_producer import QUERY_FREE
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.lang import Builder, Item


def items_of_first_release(items: Mapping[str, list[int]], clusters: int) -> dict[str, list[int]]:
    """Return work items with attributes of their own.

    later: not the first item of its cluster, so that a store is under way; second: there is a block after the first;
    rest: blocks after the second.
    """
    return {
        **items,
        "later": [int(number >= clusters) for number in range(len(items["row"]))],
        "second": [min(more, 1) for more in items["more"]],
        "rest": [max(more - 1, 0) for more in items["more"]],
    }


def consumer_of_first_release(problem: AttentionProblem) -> type[FirstRelease]:
    """Return the warp group for a problem's type."""
    return FirstReleaseNarrow if transposes(problem) else FirstRelease


class FirstRelease(Consumer):
    """A warp group with 16-bit types."""

    def __init__(
        self,
        k: Builder,
        problem: AttentionProblem,
        config: AttentionConfig,
        memory: Memory,
        group: int,
        items: Mapping[str, list[int]],
    ) -> None:
        super().__init__(k, problem, config, memory, group, items)
        self.leads = self.rescales_early = self.rescales_before_turn = True
        self.has_later, self.has_rest = any(items["later"]), any(items["rest"])
        self.has_second = any(items["second"])

    def run(self) -> None:
        """All tiles of the CTA."""
        k, memory = self.k, self.memory
        memory.meet()
        if self.turns and self.group == self.config.groups - 1:
            self.give_turn()  # group 0 begins
        k.arrive(QUERY_FREE, warps=self.query_warps)
        self.give_item()
        for item in k.work():
            self.first_block(item)
            self.other_blocks(item)
            self.end_tile()
            self.store(item)
            self.take_item()
            memory.tile.advance()
        if self.stores:
            k.tma_store_wait(pending=0)
        memory.part()

    def weigh(self) -> None:
        """Exponentials, their sum, and P; ptxas moves the wait for the values before the exponentials."""
        self.wait_for_values()
        self.softmax.exponentials(self.scores)
        self.softmax.add(self.scores)
        self.give_weights()

    @property
    def stores(self) -> bool:
        """Whether this group stores O of all."""
        return self.group == self.config.groups - 1

    def first_scores(self, item: Item) -> None:
        """Scores of the last block, in a turn; meanwhile the last tile's O leaves shared memory."""
        k, memory = self.k, self.memory
        memory.query_full.wait(memory.tile)
        memory.keys.wait()
        self.take_turn()
        self.scores_of_block()
        self.give_turn()
        self.end_store(item)
        k.mma_wait(pending=0)
        memory.keys.release()

    def scores_of_block(self) -> None:
        """Start S = Q K^T."""
        k, memory = self.k, self.memory
        k.mma(self.scores, memory.query_rows(self.group), memory.keys.current, accumulate=False)
        k.mma_commit()

    def first_block(self, item: Item) -> None:
        """Scores and softmax of the last block, whose keys may lie beyond the end."""
        self.first_scores(item)
        self.mask(item, item.last)
        self.softmax.begin()
        self.softmax.maximum(self.scores)
        self.softmax.exponentials(self.scores)
        self.softmax.add(self.scores)
        self.give_weights()
        self.k.fill(self.output)

    def end_store(self, item: Item) -> None:
        """In the group that stores, from the second tile on: wait for the store of the tile before."""
        if self.stores and self.has_later:
            with self.k.when(item.later):
                self.memory.end_store()

    def end_tile(self) -> None:
        """The values of the first block, and the division by the sums."""
        self.k.arrive(QUERY_FREE, warps=self.query_warps)
        self.last_values()

    def put_output(self, item: Item) -> None:
        """Start the copy of O; the wait comes in the next tile."""
        self.memory.start_store(item)


class FirstReleaseNarrow(FirstRelease):
    """A warp group with 8-bit types: the products of a block one after the other, no block ahead."""

    def first_scores(self, item: Item) -> None:
        """Scores of the last block, in a turn that does not end with them."""
        self.memory.query_full.wait(self.memory.tile)
        self.memory.keys.wait()
        self.take_turn()
        self.scores_of_block()
        self.end_store(item)
        self.k.mma_wait(pending=0)
        self.memory.keys.release()

    def first_block(self, item: Item) -> None:
        """Scores, softmax and values of the last block; the values outside of any turn."""
        self.first_scores(item)
        self.mask(item, item.last)
        self.softmax.first_maximum(self.scores)
        half = self.config.tile_n // 2 // PORTION * PORTION
        self.weigh_columns(0, half)
        self.give_turn()
        self.weigh_columns(half, self.config.tile_n)
        self.memory.values.wait()
        self.values_of_block(accumulate=False)

    def other_blocks(self, item: Item) -> None:
        """One block as the first, then a loop in whose turns the values of a block and the next scores are computed."""
        k = self.k
        if self.has_second:
            with k.when(item.second):
                self.memory.keys.wait()
                self.take_turn()
                self.scores_of_block()
                self.k.mma_wait(pending=0)
                self.memory.keys.release()
                self.soften()
                self.give_turn()
                self.weigh_columns(0, self.config.tile_n)
                self.memory.values.wait()
                self.values_of_block()
        self.take_turn()
        if self.has_rest:
            with k.when(item.rest):
                for _ in k.range(item.rest, name="plain"):
                    self.memory.keys.wait()
                    self.scores_of_block()
                    self.k.mma_wait(pending=0)
                    self.give_turn()
                    self.memory.keys.release()
                    self.soften()
                    self.weigh_columns(0, self.config.tile_n)
                    self.memory.values.wait()
                    self.take_turn()
                    self.values_of_block()
        self.give_turn()

    def soften(self) -> None:
        """Maximum of a block that is not the first, and O rescaled."""
        self.softmax.maximum(self.scores)
        self.softmax.rescale(self.output)

    def weigh_columns(self, first: int, end: int) -> None:
        """Exponentials, their sum, and P, whose bytes are regrouped for the second product; some columns at a time."""
        for col in range(first, end, PORTION):
            part = self.scores.columns(col, PORTION)
            self.softmax.exponentials(part)
            self.softmax.add(part)
            self.k.elementwise("cast_regrouped", self.weights.columns(col, PORTION), part)

    def values_of_block(self, *, accumulate: bool = True) -> None:
        """O += P V to its end, and the block of V given back."""
        k, memory = self.k, self.memory
        k.mma(self.output, self.weights, memory.values.current, accumulate=accumulate)
        k.mma_commit()
        k.mma_wait(pending=0)
        memory.values.release()

    def stage_output(self) -> None:
        """Columns of O lie in the order of V transposed: 16-bit elements go one by one."""
        self.k.store(self.memory.output_rows(self.group), self.output, by_element=True)

    def end_tile(self) -> None:
        """The division by the sums."""
        self.k.arrive(QUERY_FREE, warps=self.query_warps)
        self.softmax.finish()
        self.softmax.rescale(self.output)
