"""Configurations of the FIBER-native attention of A100, and its work items."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels.attention.raster import work_items
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem

GROUP = 4
"""Wefts of a role: one a subpartition."""
BLOCK_M = 64
"""Rows of a block: 16 for each subpartition, those of an accumulator."""
BLOCK_N = 64
"""Keys of a step, at least: each of four wefts loads 16 of them as fragments."""
WIDE_HEAD_DIM = 256
"""Head size at which the registers hold one block of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fiber80Config(AttentionConfig):
    """`groups` blocks of 64 rows a FIBER-thread, each with softmax wefts of its own.

    `pace`: least cycles between instructions of the wefts that do not multiply. `weft_level`: products are weft-level
    instructions (1) or mma.syncs (0). `copies`: K and V lie once in the SM (0), or in each subpartition (1).
    """

    pace: int
    weft_level: int = 1
    copies: int = 0

    @property
    def ahead(self) -> int:
        """Blocks that are copied ahead: where wefts load rows that others have copied, one stage is left alone."""
        return self.stages - 1 - self.copies

    def label(self) -> str:
        """Return a short name, as in `fiber 128x64 g2 s3 pace4 static`."""
        kind = ("" if self.weft_level else "mma.sync ") + ("copies " if self.copies else "")
        return f"fiber {kind}{self.tile_m}x{self.tile_n} g{self.groups} s{self.stages} pace{self.pace} {self.order}"


def softmax_window(problem: AttentionProblem, config: Fiber80Config) -> int:
    """Window of the softmax wefts and the weights that they write: the one that K, V and Q leave free."""
    return 1 if config.copies or problem.head_dim >= WIDE_HEAD_DIM else 0


def shared_bytes(problem: AttentionProblem, config: Fiber80Config) -> int:
    """Return the shared memory of a FIBER-thread: Q, and stages of K and V."""
    rows = config.tile_m + 2 * config.stages * config.tile_n
    return rows * problem.head_dim * problem.element_bytes


def fiber_items(problem: AttentionProblem, config: Fiber80Config) -> dict[str, list[int]]:
    """Return the work items: those of `work_items`, and how many blocks of keys go which way through the stages.

    has_i: whether there is a block i; one: whether there is only one; middle: blocks but the first and the last;
    steady: blocks that are loaded while a later one is copied; tail: the others.
    """
    items = work_items(problem, config)
    ahead = config.ahead
    blocks = [more + 1 for more in items["more"]]
    for stage in range(1, ahead):
        items[f"has_{stage}"] = [int(count > stage) for count in blocks]
    items["one"] = [int(count == 1) for count in blocks]
    items["middle"] = [max(count - 2, 0) for count in blocks]
    items["steady"] = [max(count - ahead, 0) for count in blocks]
    items["tail"] = [min(count, ahead) for count in blocks]
    return items
