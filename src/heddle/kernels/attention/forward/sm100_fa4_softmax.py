"""The softmax of FlashAttention 4: one warp group a query tile, one row a thread, exponentials of two kinds."""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.attention.forward.sm100_fa4_config import FRAGMENT, ROWS
from heddle.kernels.attention.forward.sm100_fa4_memory import Memory, Tile
from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.kernels.attention.softmax import LOG2_E, LOWEST
from heddle.lang import Builder, Index, Item, RegisterHandle


def first_part(keys: int) -> int:
    """Return the columns of P after which the second product may begin: whole fragments, up to three quarters."""
    return keys * 3 // 4 // FRAGMENT * FRAGMENT


class Softmax:
    """Takes S out of tensor memory, puts P in its place, and tells the correction group by what to rescale O.

    A thread has one row. Whether the maximum of a block replaces the running one is a policy of ours (`rescales`); the
    open kernel replaces it where it grew by more than a threshold. Sums stay exact, because exponentials, sums and
    outputs all refer to the same, possibly stale, maximum (as long as P's type holds what exceeds it: 2^16 in fp16).
    """

    def __init__(
        self, k: Builder, problem: AttentionProblem, config: AttentionConfig, memory: Memory, tile: Tile, late: bool
    ) -> None:
        self.k, self.problem, self.config, self.memory, self.tile = k, problem, config, memory, tile
        self.late, self.keys = late, config.tile_n
        self.scale = problem.scale * LOG2_E

        def column(name: str) -> RegisterHandle:
            return k.registers(f"{name}{tile.index}", (ROWS, 1), "fp32", warps=(GROUP_WARPS, 1))

        self.scores = k.registers(f"scores{tile.index}", (ROWS, self.keys), "fp32", warps=(GROUP_WARPS, 1))
        self.parts = [
            k.registers(f"weights{tile.index}_{i}", (ROWS, FRAGMENT), problem.dtype, warps=(GROUP_WARPS, 1))
            for i in range(2)
        ]
        self.highest, self.found, self.drop = column("highest"), column("found"), column("drop")
        self.change, self.scaled, self.total = column("change"), column("scaled"), column("total")
        self.unchanged = column("unchanged")

    def run(self, item: Item, has: dict[str, bool]) -> None:
        """One work item: the last block with masks, then blocks with masks, with rescaling, and with neither."""
        k, tile_n = self.k, self.config.tile_n
        if self.memory.several:
            self.tile.stats_empty.wait(self.memory.stats, flip=True)
        self.step(item, item.last, first=True)
        if has["masked"]:
            with k.when(item.masked):
                for block in k.range(item.masked, name="masked"):
                    self.step(item, item.last - tile_n + block * -tile_n, rescales=self.late)
        for name, rescales in (("rescaled", True), ("plain", False)):
            if has[name]:
                with k.when(getattr(item, name)):
                    for _ in k.range(getattr(item, name), name=name):
                        self.step(item, None, rescales=rescales)
        self.memory.put_factor(self.tile, self.total)
        self.give_stats()

    def step(self, item: Item, col: Index | None, *, first: bool = False, rescales: bool = False) -> None:
        """One block: maximum, exponentials, P; the sum comes last, when P is on its way."""
        k, memory, tile = self.k, self.memory, self.tile
        tile.scores_full.wait(memory.step)
        k.load(self.scores, tile.scores[memory.step])
        if col is not None:
            self.mask(item, col)
        if first:
            self.first_maximum()
        else:
            self.next_maximum(rescales)
            memory.put_factor(tile, self.change)
        self.give_stats()
        k.elementwise("scaled_sub", self.scores, self.scores, self.scaled, scalars=(self.scale,))
        for part in range(self.keys // FRAGMENT):
            self.exponentials(part, polynomials=col is None)
        tile.weights_last.arrive(memory.step)
        tile.stats_empty.wait(memory.stats, flip=True)
        if not first:
            k.elementwise("mul", self.total, self.total, self.change)
        k.row_reduce("sum", self.total, self.scores, accumulate=not first)
        memory.step.advance()

    def mask(self, item: Item, col: Index) -> None:
        """Leave out keys beyond the end and, if causal, behind the query."""
        problem = self.problem
        self.k.mask(
            self.scores,
            row=item.row + self.tile.index * ROWS,
            col=col,
            causal=problem.causal,
            limit=problem.seqlen_kv,
            diagonal=problem.diagonal,
            row_divisor=planes(problem, self.config).pack,
        )

    def first_maximum(self) -> None:
        """The maximum of the first block; finite where all keys are masked."""
        k = self.k
        k.row_reduce("max", self.highest, self.scores)
        k.elementwise("max", self.highest, self.highest, scalars=(LOWEST,))
        k.elementwise("scale", self.scaled, self.highest, scalars=(self.scale,))

    def next_maximum(self, rescales: bool) -> None:
        """The maximum with this block, what it does to earlier sums, and the choice between it and the stale one."""
        k = self.k
        k.elementwise("copy", self.found, self.highest)
        k.row_reduce("max", self.found, self.scores, accumulate=True)
        k.elementwise("sub", self.drop, self.highest, self.found)
        k.elementwise("scale", self.drop, self.drop, scalars=(self.scale,))
        k.elementwise("exp2", self.change, self.drop)
        if rescales:
            k.elementwise("choose", self.highest, self.found, self.highest)
        else:
            k.fill(self.unchanged, 1.0)
            k.elementwise("choose", self.change, self.unchanged, self.change)
            k.elementwise("choose", self.highest, self.highest, self.found)
        k.elementwise("scale", self.scaled, self.highest, scalars=(self.scale,))

    def give_stats(self) -> None:
        """Tell the correction group that a row factor is in shared memory."""
        self.tile.stats_full.arrive(self.memory.stats)
        self.memory.stats.advance()

    def exponentials(self, part: int, polynomials: bool) -> None:
        """Exponentiate 32 columns, convert them to P and store them; the first part of P lets the product begin.

        The first and last quarter of a row use the special function unit only: their latency is not hidden.
        """
        k, config = self.k, self.config
        columns = self.scores.columns(part * FRAGMENT, FRAGMENT)
        if polynomials and config.exp_share and 0 < part < self.keys // FRAGMENT - 1:
            k.elementwise("exp2_mixed", columns, columns, scalars=(config.exp_period, config.exp_share))
        else:
            k.elementwise("exp2", columns, columns)
        weights = self.parts[part % 2]
        k.elementwise("cast", weights, columns)
        end = (part + 1) * FRAGMENT
        target = self.tile.weights[self.memory.step].columns(part * FRAGMENT, FRAGMENT)
        k.store(target, weights, wait=end in (first_part(self.keys), self.keys))
        if end == first_part(self.keys):
            self.tile.weights_full.arrive(self.memory.step)
