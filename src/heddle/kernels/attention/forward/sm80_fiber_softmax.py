"""The softmax wefts of the FIBER-native attention of A100: scores from the pool, weights and factors to the pool."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels.attention.fiber_softmax import CHUNK, PooledSoftmax
from heddle.kernels.attention.forward.sm80_fiber_config import BLOCK_M, GROUP, Fiber80Config
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Index, Item, RegisterHandle


@dataclass(frozen=True, slots=True)
class Channels:
    """What a block's softmax reads and writes in the pool."""

    scores: RegisterHandle
    weights: RegisterHandle
    factor: RegisterHandle


class Softmax(PooledSoftmax):
    """One block of rows: reads its scores twice, for the maximum and for the exponentials, then gives them back."""

    def __init__(
        self, k: Builder, problem: AttentionProblem, config: Fiber80Config, block: int, channels: Channels
    ) -> None:
        self.channels = channels
        super().__init__(k, problem, config, block, BLOCK_M, GROUP, (channels.scores, channels.weights))

    def _step(self, item: Item, masked_col: Index | None, first: bool) -> None:
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

    def _give_factor(self) -> None:
        self.k.elementwise("copy", self.channels.factor, self.online.correction)
        self.k.set_busy_bit(self.channels.factor, "full")
