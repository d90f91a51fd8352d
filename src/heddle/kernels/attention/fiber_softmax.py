"""What the softmax wefts of the FIBER-native attentions of A100 and H100 share: the order of blocks, and chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod

from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.kernels.attention.softmax import OnlineSoftmax
from heddle.lang import Builder, Index, Item, RegisterHandle, RegisterPart

CHUNK = 8
"""Columns that are exponentiated together; the sums of a chunk wait for the exponentials of the next."""


class BlockSoftmax(ABC):
    """Block of rows `block`: all its keys, from the last block to the first."""

    def __init__(
        self, k: Builder, problem: AttentionProblem, config: AttentionConfig, block: int, rows: int, wefts: int
    ) -> None:
        self.k, self.problem, self.config, self.block, self.rows = k, problem, config, block, rows
        self.online = OnlineSoftmax(k, f"softmax{block}", problem, rows, (wefts, 1))

    def tile(self, item: Item, has_masked: bool, has_plain: bool) -> None:
        """All blocks of keys of a tile, from the last one, and the factor 1 / sum."""
        k, keys = self.k, self.config.tile_n
        ragged = self.problem.causal or self.problem.seqlen_kv % keys > 0
        self.online.begin()
        self._step(item, item.last if ragged else None, first=True)
        if has_masked:
            with k.when(item.masked):
                for block in k.range(item.masked, name="masked"):
                    self._step(item, item.last - keys + block * -keys, first=False)
        if has_plain:
            with k.when(item.plain):
                for _ in k.range(item.plain, name="plain"):
                    self._step(item, None, first=False)
        self.online.finish()
        self._give_factor()

    def _mask(self, item: Item, scores: RegisterHandle, col: Index) -> None:
        """Leave out of scores, from key `col` on, keys beyond the end and, if causal, behind the query."""
        self.k.mask(
            scores,
            row=item.row + self.block * self.rows,
            col=col,
            causal=self.problem.causal,
            limit=self.problem.seqlen_kv,
            diagonal=self.problem.diagonal,
            row_divisor=planes(self.problem, self.config).pack,
        )

    @abstractmethod
    def _step(self, item: Item, masked_col: Index | None, first: bool) -> None:
        """One block of keys; `masked_col`: the first of its columns, if some do not take part."""

    @abstractmethod
    def _give_factor(self) -> None:
        """What O is multiplied by: the correction of a new maximum, or 1 / sum at the end of a tile."""


class PooledSoftmax(BlockSoftmax):
    """Scores in the pool, read twice: for the maximum, and in chunks of columns for the exponentials.

    `tiles`: the pool's scores, which are read only, and the weights, which are written.
    """

    def __init__(
        self,
        k: Builder,
        problem: AttentionProblem,
        config: AttentionConfig,
        block: int,
        rows: int,
        wefts: int,
        tiles: tuple[RegisterHandle, RegisterHandle],
    ) -> None:
        super().__init__(k, problem, config, block, rows, wefts)
        self.scores_tile, self.weights_tile = tiles
        names = [f"exponentials{block}_{i}" for i in range(2)]
        self.chunks = [k.registers(name, (rows, CHUNK), "fp32", warps=(wefts, 1)) for name in names]

    def _maximum(self, item: Item, masked_col: Index | None) -> None:
        if masked_col is None:
            self.online.maximum(self.scores_tile)
            return
        self.online.remember()
        for col in range(0, self.config.tile_n, CHUNK):
            chunk = self._masked(item, masked_col, col)
            self.k.row_reduce("max", self.online.highest, chunk, accumulate=True, across_lanes=False)
        self.k.row_reduce("max", self.online.highest, self.online.highest)
        self.online.correct()

    def _masked(self, item: Item, masked_col: Index, col: int) -> RegisterPart:
        """A chunk of scores, copied: the pool itself is not ours to write."""
        chunk = self.chunks[col // CHUNK % 2]
        self.k.elementwise("copy", chunk, self.scores_tile.columns(col, CHUNK))
        self._mask(item, chunk, masked_col + col)
        return chunk.columns(0, CHUNK)

    def _exponentiate(self, item: Item, masked_col: Index | None, col: int) -> None:
        scores = self.scores_tile.columns(col, CHUNK)
        source = scores if masked_col is None else self._masked(item, masked_col, col)
        chunk, scale = self.chunks[col // CHUNK % 2], (self.online.scale,)
        # in two operations: the first one alone reads scores, which may be overwritten once they have been given back
        self.k.elementwise("scaled_sub", chunk, source, self.online.scaled, scalars=scale)
        self.k.elementwise("exp2", chunk, chunk)

    def _finish(self, col: int) -> None:
        """Add a chunk to the sums and round it to the type of V, where the second product reads it."""
        chunk = self.chunks[col // CHUNK % 2]
        self.online.add(chunk)
        self.k.elementwise("cast", self.weights_tile.columns(col, CHUNK), chunk)
