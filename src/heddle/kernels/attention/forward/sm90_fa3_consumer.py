"""A warp group of FlashAttention 3 on H100, which owns 64 rows of every tile.

A group issues the scores of block j and the values of block j - 1 back to back and computes the softmax of block j
while the matrix unit works on the values. Groups take turns: one's softmax runs beside the other's products.
"""

from __future__ import annotations

from collections.abc import Mapping

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.forward.sm90_fa3_config import (
    GROUP_ROWS,
    rescales_early,
    takes_turns,
    transposes,
    weight_exponent,
)
from heddle.kernels.attention.forward.sm90_fa3_memory import Blocks, Memory
from heddle.kernels.attention.forward.sm90_fa3_producer import NEXT_ITEM, NEXT_TAKEN, QUERY_FREE
from heddle.kernels.attention.forward.sm90_fa3_transpose import TransposedBlocks
from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.kernels.attention.softmax import OnlineSoftmax
from heddle.lang import Builder, Index, Item

EPILOGUE, OUTPUT, FIRST_TURN = 2, 3, 4
"""Named barriers of the warp groups."""
ATOM_COLS = 8
"""Columns of an accumulator atom: parts of a register tile are multiples of it."""
PORTION = 16
"""Columns of 8-bit weights that are summed and converted together: four fill a register, of two rows."""


class Consumer:
    """One warp group: rows [64 group, 64 group + 64) of every tile."""

    def __init__(
        self,
        k: Builder,
        problem: AttentionProblem,
        config: AttentionConfig,
        memory: Memory,
        group: int,
        items: Mapping[str, list[int]],
    ) -> None:
        self.k, self.problem, self.config, self.memory, self.group = k, problem, config, memory, group
        self.has_masked, self.has_plain = any(items["masked"]), any(items["plain"])
        self.turns = takes_turns(problem, config)
        self.leads = group == 0 or not self.turns  # waits for K and V; the others rely on their turn
        self.rescales_early, self.rescales_before_turn = rescales_early(problem), False
        self.warps = config.groups * GROUP_WARPS
        self.query_warps = self.warps + memory.producer_warps
        grid = (GROUP_WARPS, 1)
        self.scores = k.registers(f"s{group}", (GROUP_ROWS, config.tile_n), "fp32", warps=grid)
        self.output = k.registers(f"o{group}", (GROUP_ROWS, problem.head_dim), "fp32", warps=grid)
        if not config.p_shared:
            under = self.scores if config.release == 1 and transposes(problem) else None
            self.weights = k.registers(
                f"p{group}", (GROUP_ROWS, config.tile_n), problem.dtype, warps=grid, overlays=under
            )
        self.softmax = OnlineSoftmax(k, f"softmax{group}", problem, GROUP_ROWS, grid, weight_exponent(problem))

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
            k.arrive(QUERY_FREE, warps=self.query_warps)
            self.last_values()
            self.take_item()
            self.store(item)
            memory.tile.advance()
        memory.part()

    def other_blocks(self, item: Item) -> None:
        """All blocks but the last, from behind: those with a mask, then those without."""
        k = self.k
        if self.has_masked:
            with k.when(item.masked):
                for block in k.range(item.masked, name="masked"):
                    self.step(item, item.last - self.config.tile_n + block * -self.config.tile_n)
        if self.has_plain:
            with k.when(item.plain):
                for _ in k.range(item.plain, name="plain"):
                    self.step(item, None)

    def first_block(self, item: Item) -> None:
        """Scores and softmax of the last block, whose keys may lie beyond the end."""
        k, memory = self.k, self.memory
        memory.query_full.wait(memory.tile)
        memory.keys.wait()
        k.mma(self.scores, memory.query_rows(self.group), memory.keys.current, accumulate=False)
        k.mma_commit()
        memory.keys.release_when_read()
        k.mma_wait(pending=0)
        memory.keys.release()
        self.mask(item, item.last)
        self.softmax.begin()
        self.softmax.maximum(self.scores)
        self.softmax.exponentials(self.scores)
        self.softmax.add(self.scores)
        self.give_weights()
        k.fill(self.output)

    def step(self, item: Item, masked_col: Index | None) -> None:
        """Scores of the next block and values of the one before, then the softmax."""
        k, memory = self.k, self.memory
        if self.leads:
            memory.keys.wait()
        self.before_turn()
        self.take_turn()
        k.mma(self.scores, memory.query_rows(self.group), memory.keys.current, accumulate=False)
        k.mma_commit()
        memory.keys.release_when_read()
        if self.rescales_early and not self.rescales_before_turn:
            self.softmax.rescale(self.output)
        if self.leads:
            memory.values.wait()
        self.multiply_values()
        self.give_turn()
        k.mma_wait(pending=1)
        memory.keys.release()
        if masked_col is not None:
            self.mask(item, masked_col)
        self.softmax.maximum(self.scores)
        if transposes(self.problem):
            self.weigh_in_portions()
        else:
            self.weigh()
        if not self.rescales_early:
            self.softmax.rescale(self.output)

    def before_turn(self) -> None:
        """What a group does before it takes its turn."""
        if self.rescales_before_turn:
            self.softmax.rescale(self.output)

    def weigh(self) -> None:
        """Exponentials, their sum, and P; ptxas moves the wait for the values up, to a third of the softmax."""
        half = self.config.tile_n // 2 // ATOM_COLS * ATOM_COLS
        self.softmax.exponentials(self.scores.columns(0, half))
        self.wait_for_values()
        self.softmax.exponentials(self.scores.columns(half, self.config.tile_n - half))
        self.softmax.add(self.scores)
        self.give_weights()

    def weigh_in_portions(self) -> None:
        """The same for 8-bit types, whose conversions take twice as long: sums and conversions between exponentials."""
        keys = self.config.tile_n
        half = keys // 2 // PORTION * PORTION
        for col in range(0, half, PORTION):
            self.weigh_portion(col)
        self.wait_for_values()
        for col in range(half, keys, PORTION):
            self.weigh_portion(col)
            self.round_portion(col - half)
        for col in range(keys - half, keys, PORTION):
            self.round_portion(col)

    def weigh_portion(self, col: int) -> None:
        """Exponentials of some columns and their sum."""
        self.softmax.exponentials(self.scores.columns(col, PORTION))
        self.softmax.add(self.scores.columns(col, PORTION))

    def round_portion(self, col: int) -> None:
        """Round the exponentials of some columns to the type of V."""
        self.k.elementwise("cast", self.weights.columns(col, PORTION), self.scores.columns(col, PORTION))

    def wait_for_values(self) -> None:
        """Wait for the product with V, and give its block back."""
        self.k.mma_wait(pending=0)
        self.memory.values.release()

    def last_values(self) -> None:
        """The values of the first block, and the division by the sums."""
        k, memory = self.k, self.memory
        if self.rescales_early:
            self.softmax.rescale(self.output)
        memory.values.wait()
        self.multiply_values()
        self.softmax.finish()
        k.mma_wait(pending=0)
        memory.values.release()
        self.softmax.rescale(self.output)

    def store(self, item: Item) -> None:
        """O goes through the memory of V, once all groups are done with it; the last group stores for all."""
        k = self.k
        k.sync(EPILOGUE, warps=self.warps)
        self.stage_output()
        k.fence()
        if self.group < self.config.groups - 1:
            k.arrive(OUTPUT, warps=self.warps)
            return
        k.sync(OUTPUT, warps=self.warps)
        self.put_output(item)

    def stage_output(self) -> None:
        """Convert the group's rows of O and store them in shared memory."""
        self.k.store(self.memory.output_rows(self.group), self.output)

    def put_output(self, item: Item) -> None:
        """Copy O to global memory and wait until it has left shared memory."""
        self.memory.start_store(item)
        self.memory.end_store()

    def take_item(self) -> None:
        """Wait for the number of the next item."""
        if self.config.order == "dynamic":
            self.k.sync(NEXT_ITEM, warps=self.query_warps)
        self.give_item()

    def give_item(self) -> None:
        """Give the place of the item's number back."""
        if self.config.order == "dynamic":
            self.k.arrive(NEXT_TAKEN, warps=self.query_warps)

    def mask(self, item: Item, col: Index) -> None:
        """Leave out keys beyond the end and, if causal, behind the query."""
        problem = self.problem
        row = item.row + self.group * GROUP_ROWS
        self.k.mask(
            self.scores,
            row=row,
            col=col,
            causal=problem.causal,
            limit=problem.seqlen_kv,
            diagonal=problem.diagonal,
            row_divisor=planes(problem, self.config).pack,
        )

    def give_weights(self) -> None:
        """Round the exponentials to the type of V and put them where the second product reads them."""
        if self.config.p_shared:
            self.k.store(self.memory.weight_rows(self.group), self.scores)
            self.k.fence()
        else:
            self.k.elementwise("cast", self.weights, self.scores)

    def multiply_values(self) -> None:
        """Start O += P V."""
        memory = self.memory
        weights = memory.weight_rows(self.group) if self.config.p_shared else self.weights
        turned = isinstance(memory.values, TransposedBlocks)
        self.k.mma(self.output, weights, memory.values.current, transposed=not turned)
        self.k.mma_commit()
        if isinstance(memory.values, Blocks):
            memory.values.release_when_read()

    def take_turn(self) -> None:
        """Wait until the group before has issued its products."""
        if self.turns:
            self.k.sync(FIRST_TURN + self.group, warps=2 * GROUP_WARPS)

    def give_turn(self) -> None:
        """Let the next group issue its products."""
        if self.turns:
            self.k.arrive(FIRST_TURN + (self.group + 1) % self.config.groups, warps=2 * GROUP_WARPS)
