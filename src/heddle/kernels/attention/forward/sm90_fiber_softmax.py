"""The softmax wefts of the FIBER-native attention of H100: scores from the pool, weights and factors to the pool."""

from __future__ import annotations

from heddle.kernels._channels import Channel
from heddle.kernels.attention.fiber_softmax import CHUNK, PooledSoftmax
from heddle.kernels.attention.forward.sm90_fiber_config import BLOCK_M, FiberConfig
from heddle.kernels.attention.forward.sm90_fiber_memory import GROUP
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Index, Item


class Softmax(PooledSoftmax):
    """One block of 64 rows: reads its scores twice, for the maximum and for the exponentials, then gives them back."""

    def __init__(
        self,
        k: Builder,
        problem: AttentionProblem,
        config: FiberConfig,
        block: int,
        channels: tuple[Channel, Channel, Channel],
    ) -> None:
        self.scores, self.weights, self.factor = channels
        super().__init__(k, problem, config, block, BLOCK_M, GROUP, (self.scores.tensor, self.weights.tensor))

    def _step(self, item: Item, masked_col: Index | None, first: bool) -> None:
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

    def _give_factor(self) -> None:
        self.factor.begin_write()
        self.k.elementwise("copy", self.factor.tensor, self.online.correction)
        self.factor.end_write()
