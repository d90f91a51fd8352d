"""The softmax wefts of the FIBER-native attention of A100: scores from the pool, weights and factors to the pool."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.sm80_fiber_config import BLOCK_M, GROUP, Fiber80Config
from heddle.kernels.attention.softmax import OnlineSoftmax
from heddle.lang import Builder, Index, Item, RegisterHandle, RegisterPart

CHUNK = 8
"""Columns that are exponentiated together; the sums of a chunk wait for the exponentials of the next."""


@dataclass(frozen=True, slots=True)
class Channels:
    """What a block's softmax reads and writes in the pool."""

    scores: RegisterHandle
    weights: RegisterHandle
    factor: RegisterHandle


class Softmax:
    """One block of rows: reads its scores twice, for the maximum and for the exponentials, then gives them back."""

    def __init__(
        self, k: Builder, problem: AttentionProblem, config: Fiber80Config, block: int, channels: Channels
    ) -> None:
        self.k, self.problem, self.config, self.block, self.channels = k, problem, config, block, channels
        self.online = OnlineSoftmax(k, f"softmax{block}", problem, BLOCK_M, (GROUP, 1))
        names = [f"exponentials{block}_{i}" for i in range(2)]
        self.chunks = [k.registers(name, (BLOCK_M, CHUNK), "fp32", warps=(GROUP, 1)) for name in names]

    def tile(self, item: Item, has_masked: bool, has_plain: bool) -> None:
        """All keys of a tile, from the last on, each with the factor of O before; at the end the factor 1 / sum."""
        k, below = self.k, self.config.tile_n
        ragged = self.problem.causal or self.problem.seqlen_kv % below > 0
        self.online.begin()
        self._keys(item, item.last if ragged else None)
        if has_masked:
            with k.when(item.masked):
                for step in k.range(item.masked, name="masked"):
                    self._keys(item, item.last - below + step * -below)
        if has_plain:
            with k.when(item.plain):
                for _ in k.range(item.plain, name="plain"):
                    self._keys(item, None)
        self.online.finish()
        self._give_factor()

    def _keys(self, item: Item, masked_col: Index | None) -> None:
        """The keys of a step; `masked_col`: the number of the first, if some do not take part."""
        self._maximum(item, masked_col)
        self._give_factor()
        waiting: int | None = None
        for col in range(0, self.config.tile_n, CHUNK):
            self._exponentiate(item, masked_col, col)
            if waiting is not None:
                self._finish(waiting)
            waiting = col
        assert waiting is not None
        self.k.set_busy_bit(self.channels.scores, "empty")
        self._finish(waiting)
        self.k.set_busy_bit(self.channels.weights, "full")

    def _maximum(self, item: Item, masked_col: Index | None) -> None:
        if masked_col is None:
            self.online.maximum(self.channels.scores)
            return
        self.online.remember()
        for col in range(0, self.config.tile_n, CHUNK):
            chunk = self._masked(item, masked_col, col)
            self.k.row_reduce("max", self.online.highest, chunk, accumulate=True, across_lanes=False)
        self.k.row_reduce("max", self.online.highest, self.online.highest)
        self.online.correct()

    def _masked(self, item: Item, masked_col: Index, col: int) -> RegisterPart:
        """A chunk of scores, those of keys that take no part lowered; the pool itself is not ours to write."""
        chunk = self.chunks[col // CHUNK % 2]
        self.k.elementwise("copy", chunk, self.channels.scores.columns(col, CHUNK))
        self.k.mask(
            chunk,
            row=item.row + self.block * BLOCK_M,
            col=masked_col + col,
            causal=self.problem.causal,
            limit=self.problem.seqlen_kv,
            diagonal=self.problem.diagonal,
        )
        return chunk.columns(0, CHUNK)

    def _exponentiate(self, item: Item, masked_col: Index | None, col: int) -> None:
        scores = self.channels.scores.columns(col, CHUNK)
        source = scores if masked_col is None else self._masked(item, masked_col, col)
        chunk, scale = self.chunks[col // CHUNK % 2], (self.online.scale,)
        self.k.elementwise("scaled_sub", chunk, source, self.online.scaled, scalars=scale)  # gives the scores back
        self.k.elementwise("exp2", chunk, chunk)

    def _finish(self, col: int) -> None:
        """Add a chunk to the sums and round it to the type of V, where the second product reads it."""
        chunk = self.chunks[col // CHUNK % 2]
        self.online.add(chunk)
        self.k.elementwise("cast", self.channels.weights.columns(col, CHUNK), chunk)

    def _give_factor(self) -> None:
        """What O is multiplied by: the correction of a new maximum, or 1 / sum at the end of a tile."""
        self.k.elementwise("copy", self.channels.factor, self.online.correction)
        self.k.set_busy_bit(self.channels.factor, "full")
