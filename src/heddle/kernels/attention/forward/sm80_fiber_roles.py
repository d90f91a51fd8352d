"""Attention forward on A100 with FIBER where wefts have no full and empty bits: roles, and mma.sync.

Wefts of one role have rows of Q of their own, and everything of a row: scores, softmax and O. They read K and V in
shared memory by ldmatrix, which wefts of other roles copy there, so that a block is copied once for all rows of an SM.
While one of two groups of four multiplies, P V of one block and Q K^T of the next, the other can exponentiate. No
register is shared: named barriers order everything, and the kernel runs where wefts share no registers, too.
"""

from __future__ import annotations

from heddle.kernels.attention.forward.sm80_fa2_config import DEPTH
from heddle.kernels.attention.forward.sm80_fiber_config import GROUP
from heddle.kernels.attention.forward.sm80_fiber_roles_config import Roles80Config
from heddle.kernels.attention.forward.sm80_fiber_roles_memory import COPIERS, Memory
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.softmax import OnlineSoftmax
from heddle.lang import Builder, Index, Item, kernel

COPY_REGISTERS = 12
"""Of a weft that copies: addresses."""
ROW_REGISTERS = 240
"""Of a weft with rows of its own: what its window leaves."""


@kernel
def attention_sm80_fiber_roles(
    k: Builder, problem: AttentionProblem, config: Roles80Config, items: dict[str, list[int]], clusters: int
) -> None:
    """Persistent over the tiles of Q."""
    k.flops = problem.flops
    k.work_items(items, clusters=clusters, schedule=config.order)
    memory = Memory(k, problem, config)
    k.set_fiber_num(keys=COPIERS, values=COPIERS, **{f"rows{g}": GROUP for g in range(config.groups)})

    for name, window, blocks in (("keys", 0, memory.keys), ("values", 1, memory.values)):
        with k.role(name, window=window, registers=COPY_REGISTERS):
            for item in k.work():
                blocks.copy_all(item, any(items["pairs"]), any(items["odd"]))
    for group in range(config.groups):
        with k.role(f"rows{group}", window=group, registers=ROW_REGISTERS):
            memory.open(group)
            rows = Rows(k, problem, config, memory, group)
            for item in k.work():
                rows.tile(item, items)


class Rows:
    """A group of four wefts and its rows."""

    def __init__(
        self, k: Builder, problem: AttentionProblem, config: Roles80Config, memory: Memory, group: int
    ) -> None:
        self.k, self.problem, self.config, self.memory, self.group = k, problem, config, memory, group
        grid, scores = (GROUP, 1), (config.rows, config.tile_n)
        self.scores = k.registers(f"scores{group}", scores, "fp32", warps=grid)
        self.weights = k.registers(f"weights{group}", scores, problem.dtype, warps=grid)
        self.output = k.registers(f"output{group}", (config.rows, problem.head_dim), "fp32", warps=grid)
        self.softmax = OnlineSoftmax(k, f"softmax{group}", problem, config.rows, grid)

    def tile(self, item: Item, items: dict[str, list[int]]) -> None:
        """All blocks of keys, from the last one to the first."""
        k, keys = self.k, self.config.tile_n
        self._begin(item)
        self._first(item)
        for name in ("edges", "whole"):
            if any(items[name]):
                with k.when(getattr(item, name)):
                    start = item.last if name == "edges" else None
                    for pair in k.range(getattr(item, name), name=name):
                        for stage, number in ((1, 1), (0, 2)):
                            col = start - number * keys + pair * (-2 * keys) if start is not None else None
                            self._step(item, stage, col)
        if any(items["odd"]):
            with k.when(item.odd):
                self._step(item, 1, Index() if self.problem.causal else None)
                self._last(1)
        if any(items["even"]):
            with k.when(item.even):
                self._last(0)
        self.softmax.finish()
        self.softmax.rescale(self.output)
        k.store(self.memory.o_global[item.q_plane, self._row(item), 0], self.output)

    def _begin(self, item: Item) -> None:
        """Q: each weft copies its own rows."""
        k, rows = self.k, self.memory.own_queries(self.group)
        k.cp_async(rows, self.memory.q_global[item.q_plane, self._row(item), 0], own_rows=True)
        k.cp_async_commit()
        k.fill(self.output)
        self.softmax.begin()
        k.cp_async_wait(pending=0)

    def _row(self, item: Item) -> Index:
        return item.row + self.group * self.config.rows

    def _first(self, item: Item) -> None:
        self.memory.begin_turn(self.group)
        self._score(0)
        self.memory.end_turn(self.group)
        ragged = self.problem.causal or self.problem.seqlen_kv % self.config.tile_n > 0
        self._mask(item, item.last if ragged else None)

    def _step(self, item: Item, stage: int, masked_col: Index | None) -> None:
        """The softmax of a block, its values, and the scores of the next one, which is in `stage`."""
        self._exponentiate()
        self.memory.begin_turn(self.group)
        self._add(1 - stage)
        self._score(stage)
        self.memory.end_turn(self.group)
        self._mask(item, masked_col)

    def _last(self, stage: int) -> None:
        """The softmax of the last block, which is in `stage`, and its values."""
        self._exponentiate()
        self.memory.begin_turn(self.group)
        self._add(stage)
        self.memory.end_turn(self.group)

    def _score(self, stage: int) -> None:
        keys = self.memory.keys
        self.k.mma(self.scores, self.memory.own_queries(self.group), keys.begin(self.group, stage), accumulate=False)
        keys.release(stage)

    def _add(self, stage: int) -> None:
        values = self.memory.values
        self.k.mma(self.output, self.weights, values.begin(self.group, stage), transposed=True)
        values.release(stage)

    def _mask(self, item: Item, col: Index | None) -> None:
        """Leave out keys beyond the end and, if causal, behind the query."""
        if col is None:
            return
        self.k.mask(
            self.scores,
            row=self._row(item),
            col=col,
            causal=self.problem.causal,
            limit=self.problem.seqlen_kv,
            diagonal=self.problem.diagonal,
        )

    def _exponentiate(self) -> None:
        """Scores become weights, in the portions that the second product reads."""
        k, softmax = self.k, self.softmax
        softmax.maximum(self.scores)
        softmax.rescale(self.output)
        for col in range(0, self.config.tile_n, DEPTH):
            part = self.scores.columns(col, DEPTH)
            softmax.exponentials(part)
            softmax.add(part)
            k.elementwise("cast", self.weights.columns(col, DEPTH), part)
