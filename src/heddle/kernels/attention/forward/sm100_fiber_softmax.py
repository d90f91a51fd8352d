"""The softmax of the FIBER-native attention of B200: a row a lane, scores read twice, weights left as fragments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heddle.ir.warp_fiber import TENSOR_COLUMNS
from heddle.kernels.attention.forward.sm100_fa4_config import ROWS
from heddle.kernels.attention.forward.sm100_fiber_config import GROUP, FiberConfig
from heddle.kernels.attention.forward.sm100_fiber_memory import Lane
from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E, LOWEST
from heddle.lang import Builder, Index, Item, RegisterHandle

BUFFERS = 2
"""Chunks of scores in registers: one is computed on while the next is on its way."""


class Softmax:
    """The code of one part of a tile's lanes: columns [part * width, (part + 1) * width) of S and P.

    Whether the maximum of a block replaces the running one is a policy (`rescales`), as in FlashAttention 4 here.
    """

    def __init__(
        self, k: Builder, problem: AttentionProblem, config: FiberConfig, lanes: Sequence[Lane], part: int
    ) -> None:
        self.k, self.problem, self.config, self.lanes, self.part = k, problem, config, tuple(lanes), part
        self.tile, self.lane = lanes[0].tile, lanes[0]
        self.scale, self.name = problem.scale * LOG2_E, f"{lanes[0].tile.index}_{part}"
        self.buffers = [self._registers(f"chunk{i}", config.chunk) for i in range(BUFFERS)]
        self.highest, self.found, self.drop = self._column("highest"), self._column("found"), self._column("drop")
        self.change, self.scaled, self.total = self._column("change"), self._column("scaled"), self._column("total")
        self.unchanged = self._column("unchanged")

    def _registers(self, name: str, cols: int) -> RegisterHandle:
        return self.k.registers(f"{name}_{self.name}", (ROWS, cols), "fp32", warps=(GROUP, 1))

    def _column(self, name: str) -> RegisterHandle:
        return self._registers(name, 1)

    def run(self, item: Item, has: dict[str, bool], late: bool) -> None:
        """One work item: the last block with masks, then blocks with masks, with rescaling, and with neither."""
        k, tile_n = self.k, self.config.tile_n
        self.step(item, item.last, first=True)
        if has["masked"]:
            with k.when(item.masked):
                for block in k.range(item.masked, name="masked"):
                    self.step(item, item.last - tile_n + block * -tile_n, rescales=late)
        for name, rescales in (("rescaled", True), ("plain", False)):
            if has[name]:
                with k.when(getattr(item, name)):
                    for _ in k.range(getattr(item, name), name=name):
                        self.step(item, None, rescales=rescales)
        self.give(self.tile.sums[self.part], self.total)

    def step(self, item: Item, col: Index | None, *, first: bool = False, rescales: bool = False) -> None:
        """One step, lane by lane."""
        for lane in self.lanes:
            self.lane = lane
            begins = first and lane is self.lanes[0]
            self.block(item, None if col is None else col + lane.keys_at, first=begins, rescales=rescales)

    def block(self, item: Item, col: Index | None, *, first: bool, rescales: bool) -> None:
        """One block: its maximum, then its exponentials, which are converted to weights chunk by chunk."""
        self.lane.issued[self.part].take()
        if not first:
            self.k.elementwise("copy", self.found, self.highest)
        self.walk(lambda chunk, buffer: self.search(item, col, chunk, buffer, first), gives_back=False)
        self.exchange(self.highest if first else self.found)
        if first:
            self.first_maximum()
        else:
            self.next_maximum(rescales)
        self.walk(lambda chunk, buffer: self.exponentials(item, col, chunk, buffer, first), gives_back=True)
        self.k.set_busy_bit(self.lane.weights[self.part], "full")

    # chunks

    @property
    def chunks(self) -> int:
        """Chunks of a block."""
        return self.lane.width // self.config.chunk

    def walk(self, work: Callable[[int, RegisterHandle], None], gives_back: bool) -> None:
        """Load chunk after chunk, one ahead of the one that is worked on; `gives_back`: this is the last reading."""
        self.load(0, gives_back)
        for chunk in range(self.chunks):
            if chunk + 1 < self.chunks:
                self.load(chunk + 1, gives_back)
            work(chunk, self.buffers[chunk % BUFFERS])

    def load(self, chunk: int, gives_back: bool) -> None:
        """Tensor memory to registers; columns are given back by groups that have a bit."""
        size = self.config.chunk
        first = self.part * self.lane.width + chunk * size
        box = self.lane.scores[:].columns(first, size)
        self.k.load(self.buffers[chunk % BUFFERS], box)
        end = first + size
        if gives_back and end % TENSOR_COLUMNS == 0:
            width = max(size, TENSOR_COLUMNS)
            self.k.set_busy_bit(self.lane.scores[:].columns(end - width, width), "empty")

    def mask(self, item: Item, col: Index, chunk: int, scores: RegisterHandle) -> None:
        """Leave out keys beyond the end and, if causal, behind the query."""
        problem = self.problem
        self.k.mask(
            scores,
            row=item.row + self.tile.index * ROWS,
            col=col + (self.part * self.lane.width + chunk * self.config.chunk),
            causal=problem.causal,
            limit=problem.seqlen_kv,
            diagonal=problem.diagonal,
            row_divisor=planes(problem, self.config).pack,
        )

    def search(self, item: Item, col: Index | None, chunk: int, scores: RegisterHandle, first: bool) -> None:
        """Take a chunk into the maximum."""
        if col is not None:
            self.mask(item, col, chunk, scores)
        target = self.highest if first else self.found
        self.k.row_reduce("max", target, scores, accumulate=not first or chunk > 0)

    def exponentials(self, item: Item, col: Index | None, chunk: int, scores: RegisterHandle, first: bool) -> None:
        """Exponentials of a chunk, by two units in blocks without masks; into the sum, and as weights to the pool."""
        k, config = self.k, self.config
        if col is not None:
            self.mask(item, col, chunk, scores)
        k.elementwise("scaled_sub", scores, scores, self.scaled, scalars=(self.scale,))
        if col is None and config.exp_share:
            k.elementwise("exp2_mixed", scores, scores, scalars=(config.exp_period, config.exp_share))
        else:
            k.elementwise("exp2", scores, scores)
        k.elementwise("cast", self.lane.weights[self.part].columns(chunk * config.chunk, config.chunk), scores)
        k.row_reduce("sum", self.total, scores, accumulate=not first or chunk > 0)

    # rows

    def take(self, own: RegisterHandle, given: RegisterHandle) -> None:
        """Copy a column from the pool and give it back."""
        self.k.elementwise("copy", own, given)
        self.k.set_busy_bit(given, "empty")

    def give(self, target: RegisterHandle, own: RegisterHandle) -> None:
        """Copy a column to the pool, once the one before has been given back."""
        self.k.elementwise("copy", target, own)
        self.k.set_busy_bit(target, "full")

    def exchange(self, highest: RegisterHandle) -> None:
        """The maximum over all parts of the tile."""
        for other, peak in enumerate(self.lane.peaks):
            if other == self.part:
                self.give(peak, highest)
        for other, peak in enumerate(self.lane.peaks):
            if other != self.part:
                self.take(self.drop, peak)
                self.k.elementwise("max", highest, highest, self.drop)

    def first_maximum(self) -> None:
        """The maximum of the first block; finite where all keys are masked."""
        k = self.k
        k.elementwise("max", self.highest, self.highest, scalars=(LOWEST,))
        k.elementwise("scale", self.scaled, self.highest, scalars=(self.scale,))

    def next_maximum(self, rescales: bool) -> None:
        """The choice between the new and the stale maximum, and what it does to earlier sums and to the output."""
        k = self.k
        k.elementwise("sub", self.drop, self.highest, self.found)
        k.elementwise("scale", self.drop, self.drop, scalars=(self.scale,))
        k.elementwise("exp2", self.change, self.drop)
        if rescales:
            k.elementwise("choose", self.highest, self.found, self.highest)
        else:
            k.fill(self.unchanged, 1.0)
            k.elementwise("choose", self.change, self.unchanged, self.change)
            k.elementwise("choose", self.highest, self.highest, self.found)
        if self.part == 0 and self.tile.factor is not None:
            self.give(self.tile.factor, self.change)
        k.elementwise("scale", self.scaled, self.highest, scalars=(self.scale,))
        k.elementwise("mul", self.total, self.total, self.change)
