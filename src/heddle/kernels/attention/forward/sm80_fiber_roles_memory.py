"""Shared memory and named barriers of the attention of A100 for wefts without bits, and the wefts that copy K and V."""

from __future__ import annotations

from heddle.kernels.attention.forward.sm80_fiber_config import GROUP
from heddle.kernels.attention.forward.sm80_fiber_roles_config import Roles80Config
from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionProblem
from heddle.lang import Builder, Index, Item, SharedBox

COPIERS = 1
"""Wefts that copy K, and that copy V: a block is 32 instructions."""


class Blocks:
    """K or V: `stages` blocks, for each a barrier with every group that says it is full, and one that says it is free.

    Of groups that take turns only the first is told: the others multiply after it, and their turn says so.
    Named barriers are numbered from `first` on. Arrivals of the last blocks stay at them when the wefts exit.
    """

    def __init__(
        self,
        k: Builder,
        name: str,
        shape: tuple[int, int, int],
        problem: AttentionProblem,
        config: Roles80Config,
        first: int,
    ) -> None:
        self.k, self.config, self.first = k, config, first
        self.source = k.tensor(name, shape, problem.dtype)
        self.tile = k.shared(name.lower(), (config.tile_n, problem.head_dim), problem.dtype, stages=config.stages)

    @staticmethod
    def barriers(config: Roles80Config) -> int:
        """Return how many named barriers one tensor takes."""
        return config.stages * (config.told + 1)

    def begin(self, group: int, stage: int) -> SharedBox:
        """Wait for a block, or in a turn behind the first group's be sure of it; return it."""
        if group < self.config.told:
            self.k.sync(id=self._full(stage, group), warps=COPIERS + GROUP)
        return self.tile.stage(stage)

    def release(self, stage: int) -> None:
        """Give a block back: one of all groups."""
        self.k.arrive(self._free(stage), warps=self._everyone)

    def copy(self, item: Item, row: Index, stage: int) -> None:
        """Copy a block as soon as all groups have given the one before back, and say that it is there."""
        k = self.k
        k.sync(id=self._free(stage), warps=self._everyone)
        k.cp_async(self.tile.stage(stage), self.source[item.kv_plane, row, 0])
        k.cp_async_commit()
        k.cp_async_wait(pending=0)
        for group in range(self.config.told):
            k.arrive(self._full(stage, group), warps=COPIERS + GROUP)

    def copy_all(self, item: Item, has_pairs: bool, has_odd: bool) -> None:
        """All blocks of a tile, from the last one."""
        k, keys = self.k, self.config.tile_n
        self.copy(item, item.last, 0)
        if has_pairs:
            with k.when(item.pairs):
                for pair in k.range(item.pairs, name="pair"):
                    self.copy(item, item.last - keys + pair * (-2 * keys), 1)
                    self.copy(item, item.last - 2 * keys + pair * (-2 * keys), 0)
        if has_odd:
            with k.when(item.odd):
                self.copy(item, Index(), 1)

    @property
    def _everyone(self) -> int:
        return COPIERS + GROUP * self.config.groups

    def _full(self, stage: int, group: int) -> int:
        return self.first + stage * self.config.told + group

    def _free(self, stage: int) -> int:
        return self.first + self.config.stages * self.config.told + stage


class Memory:
    """Tensors in global and shared memory, and whose turn it is."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: Roles80Config) -> None:
        self.k, self.config = k, config
        layout, d, dtype = planes(problem, config), problem.head_dim, problem.dtype
        queries, keys = (layout.count, layout.rows, d), (problem.batch * problem.heads_kv, problem.seqlen_kv, d)
        self.q_global = k.tensor("Q", queries, dtype)
        self.keys = Blocks(k, "K", keys, problem, config, 1)
        self.values = Blocks(k, "V", keys, problem, config, 1 + Blocks.barriers(config))
        self.o_global = k.tensor("O", queries, dtype, role="output")
        self.queries = k.shared("q", (config.tile_m, d), dtype)
        self.first_turn = 1 + 2 * Blocks.barriers(config)

    def own_queries(self, group: int) -> SharedBox:
        """The rows of a group."""
        return self.queries[:].part(row=group * self.config.rows, rows=self.config.rows)

    def open(self, group: int) -> None:
        """At the entry of a group: all stages are free, and the first group has the turn."""
        for blocks in (self.keys, self.values):
            for stage in range(self.config.stages):
                blocks.release(stage)
        if group == self.config.groups - 1:
            self.end_turn(group)

    def begin_turn(self, group: int) -> None:
        """Wait until the group before has multiplied."""
        if self.config.take_turns:
            self.k.sync(id=self.first_turn + group, warps=2 * GROUP)

    def end_turn(self, group: int) -> None:
        """The next group may multiply."""
        if self.config.take_turns:
            self.k.arrive(self.first_turn + (group + 1) % self.config.groups, warps=2 * GROUP)
