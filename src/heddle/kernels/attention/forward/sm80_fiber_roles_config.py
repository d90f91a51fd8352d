"""Configurations of the attention of A100 for wefts without full and empty bits, and its work items."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels.attention.forward.sm80_fiber_config import GROUP
from heddle.kernels.attention.raster import work_items
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem

STAGES = 2
"""Of K and of V: each has named barriers of its own, of which there are 16."""
WEFT_TILES = {64: (32, 128), 128: (32, 64), 256: (16, 32)}
"""Rows of a weft and keys of a block, by head size, as registers hold O, a block of scores and fragments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles80Config(AttentionConfig):
    """`groups` groups of four wefts, each with rows of its own; they take turns to multiply (`turns` = 1), or not."""

    turns: int = 1

    def label(self) -> str:
        """Return a short name, as in `fiber roles 256x64 g2 turns static`."""
        turns = "turns " if self.turns else ""
        return f"fiber roles {self.tile_m}x{self.tile_n} g{self.groups} {turns}{self.order}"

    @property
    def rows(self) -> int:
        """Rows of a group."""
        return self.tile_m // self.groups

    @property
    def take_turns(self) -> bool:
        """Whether there are turns."""
        return bool(self.turns) and self.groups > 1

    @property
    def told(self) -> int:
        """Groups that are told of a full block."""
        return 1 if self.take_turns else self.groups


def shared_bytes(problem: AttentionProblem, config: Roles80Config) -> int:
    """Return the shared memory of a FIBER-thread: Q, and stages of K and V."""
    rows = config.tile_m + 2 * config.stages * config.tile_n
    return rows * problem.head_dim * problem.element_bytes


def weft_rows(config: Roles80Config) -> int:
    """Return the rows of a weft that multiplies."""
    return config.rows // GROUP


def roles_items(problem: AttentionProblem, config: Roles80Config) -> dict[str, list[int]]:
    """Return the work items of `work_items`, and how many blocks go which way through the two stages.

    pairs: pairs of blocks behind the first one, of which `edges` need a mask and `whole` do not; odd: whether one block
    is left over, in the second stage; even: whether none is.
    """
    items = work_items(problem, config)
    items["pairs"] = [more // 2 for more in items["more"]]
    masked = zip(items["pairs"], items["masked"], strict=True)
    items["edges"] = [min(pairs, -(-count // 2)) for pairs, count in masked]
    items["whole"] = [pairs - edges for pairs, edges in zip(items["pairs"], items["edges"], strict=True)]
    items["odd"] = [more % 2 for more in items["more"]]
    items["even"] = [1 - more % 2 for more in items["more"]]
    return items
