"""The softmax wefts of the FIBER-native attention of H100: scores from the pool, weights and factors to the pool."""

from __future__ import annotations

from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.sm90_fiber_channel import Channel
from heddle.kernels.attention.sm90_fiber_config import BLOCK_M, FiberConfig
from heddle.kernels.attention.sm90_fiber_masks import mask_keys
from heddle.kernels.attention.sm90_fiber_memory import GROUP
from heddle.kernels.attention.softmax import OnlineSoftmax
from heddle.lang import Builder, Index, Item, RegisterPart

CHUNK = 8
"""Columns of scores that are exponentiated together; the sums of a chunk wait for the exponentials of the next."""


class Softmax:
    """One block of 64 rows: reads its scores twice, for the maximum and for the exponentials, then gives them back."""

    def __init__(
        self,
        k: Builder,
        problem: AttentionProblem,
        config: FiberConfig,
        block: int,
        channels: tuple[Channel, Channel, Channel],
    ) -> None:
        self.k, self.problem, self.config, self.block = k, problem, config, block
        self.scores, self.weights, self.factor = channels
        self.online = OnlineSoftmax(k, f"softmax{block}", problem, BLOCK_M, (GROUP, 1))
        names = [f"exponentials{block}_{i}" for i in range(2)]
        self.exponentials = [k.registers(name, (BLOCK_M, CHUNK), "fp32", warps=(GROUP, 1)) for name in names]

    def tile(self, item: Item, has_masked: bool, has_plain: bool) -> None:
        """All blocks of keys of a tile, from the last one, and the factor 1 / sum."""
        k, config = self.k, self.config
        ragged = self.problem.causal or self.problem.seqlen_kv % config.tile_n > 0
        self.online.begin()
        self._step(item, item.last if ragged else None, first=True)
        if has_masked:
            with k.when(item.masked):
                for block in k.range(item.masked, name="masked"):
                    self._step(item, item.last - config.tile_n + block * -config.tile_n)
        if has_plain:
            with k.when(item.plain):
                for _ in k.range(item.plain, name="plain"):
                    self._step(item, None)
        self.online.finish()
        self._give_factor()

    def _step(self, item: Item, masked_col: Index | None, first: bool = False) -> None:
        """One block of keys; `masked_col`: the first of its columns, if some do not take part."""
        self.scores.begin_read()
        self._maximum(item, masked_col)
        if not first:
            self._give_factor()
        waiting: int | None = None
        for col in range(0, self.config.tile_n, CHUNK):
            self._exponentiate(item, masked_col, col)
            if waiting == 0:
                self.weights.begin_write()
            if waiting is not None:
                self._finish(waiting)
            waiting = col
        assert waiting is not None
        self.scores.end_read()
        self._finish(waiting)
        self.weights.end_write()

    def _maximum(self, item: Item, masked_col: Index | None) -> None:
        if masked_col is None:
            self.online.maximum(self.scores.tensor)
            return
        self.online.remember()
        for col in range(0, self.config.tile_n, CHUNK):
            chunk = self._masked(item, masked_col, col)
            self.k.row_reduce("max", self.online.highest, chunk, accumulate=True, across_lanes=False)
        self.k.row_reduce("max", self.online.highest, self.online.highest)
        self.online.correct()

    def _masked(self, item: Item, masked_col: Index, col: int) -> RegisterPart:
        chunk = self.exponentials[col // CHUNK % 2]
        self.k.elementwise("copy", chunk, self.scores.tensor.columns(col, CHUNK))
        mask_keys(self.k, self.problem, self.config, item, chunk, self.block, masked_col + col)
        return chunk.columns(0, CHUNK)

    def _exponentiate(self, item: Item, masked_col: Index | None, col: int) -> None:
        chunk = self.exponentials[col // CHUNK % 2]
        source = self.scores.tensor.columns(col, CHUNK) if masked_col is None else self._masked(item, masked_col, col)
        # in two operations: the first one alone reads scores, which may be overwritten once they have been given back
        self.k.elementwise("scaled_sub", chunk, source, self.online.scaled, scalars=(self.online.scale,))
        self.k.elementwise("exp2", chunk, chunk)

    def _finish(self, col: int) -> None:
        """Add a chunk to the sums and round it to the type of V, where the second product reads it."""
        chunk = self.exponentials[col // CHUNK % 2]
        self.online.add(chunk)
        self.k.elementwise("cast", self.weights.tensor.columns(col, CHUNK), chunk)

    def _give_factor(self) -> None:
        """What O is multiplied by: the correction of a new maximum, or 1 / sum at the end of a tile."""
        self.factor.begin_write()
        self.k.elementwise("copy", self.factor.tensor, self.online.correction)
        self.factor.end_write()
