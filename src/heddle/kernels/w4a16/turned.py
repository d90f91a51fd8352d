"""What the kernels of H100 and B200 share that multiply with the weights as rows: C^T = W^T A^T, tile by tile.

The matrix units of these GPUs take a first operand from registers or tensor memory and the second from shared memory.
So weights, which are made in registers, are the first one and their columns the rows of a tile; tokens are its columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels._limits import check_item_count
from heddle.kernels._rounding import ceil_div
from heddle.kernels.gemm.raster import grouped_order
from heddle.kernels.w4a16.makers import maker_items
from heddle.kernels.w4a16.shape import TILE_K, W4Problem
from heddle.lang import Builder, Cta, Index, Item, SharedBox


@dataclass(frozen=True, slots=True)
class TurnedTiles:
    """Tiles of `weights` columns of W and `tokens` rows of A, `cluster` of them side by side that share rows of A."""

    weights: int
    tokens: int
    stages: int
    cluster: int = 1

    def items(self, problem: W4Problem, wave: int) -> dict[str, list[int]]:
        """Return the work items, one for the tiles of a cluster; `wave`: clusters that run at one time."""
        height, width = self.tokens, self.weights * self.cluster
        rows, cols = ceil_div(problem.m, height), ceil_div(problem.n, width)
        check_item_count(f"a kernel with weights as rows cuts {problem.m} x {problem.n}", rows * cols)
        order = grouped_order(rows, cols, (height, width), wave)
        firsts = (order[:, 1] * width).tolist()
        return {
            "row": (order[:, 0] * height).tolist(),
            "k_blocks": [ceil_div(problem.k, TILE_K)] * len(order),
            **maker_items(problem, firsts),
        }


class Tokens:
    """Rows of A in a ring of slices of k that one warp fills by bulk copies; `readers` give each slice back.

    The CTAs of a cluster have the same rows of A: each loads its part of a slice for all of them.
    """

    def __init__(self, k: Builder, problem: W4Problem, tiles: TurnedTiles, readers: int) -> None:
        self.k, self.tiles = k, tiles
        self.tensor = k.tensor("A", (problem.m, problem.k), problem.dtype)
        self.shared = k.shared("a", (tiles.tokens, TILE_K), problem.dtype, stages=tiles.stages)
        self.ring = k.ring("ring", tiles.stages)
        self.full = k.barrier("full", arrivals=1, stages=tiles.stages)
        self.empty = k.barrier("empty", arrivals=readers * tiles.cluster, stages=tiles.stages)
        self.everyone: Cta = "all" if tiles.cluster > 1 else "own"

    def load(self, item: Item, row: Index | None = None) -> None:
        """Global to shared memory, as far ahead as the ring allows; `row`: the first one, by default the item's."""
        k, ring, full = self.k, self.ring, self.full
        for kb in k.range(item.k_blocks, name="slice"):
            self.empty.wait(ring, flip=True)
            full.expect(ring, bytes=self.shared.stage_bytes)
            box = self.tensor[item.row if row is None else row, kb * TILE_K]
            k.tma_load(self.shared[ring], box, full[ring], multicast=self.tiles.cluster)
            ring.advance()

    def columns(self, first: int, count: int) -> SharedBox:
        """Some tokens of the current slice."""
        return self.shared[self.ring].part(row=first, rows=count)

    def wait(self) -> None:
        """Wait for the slice that the ring points to."""
        self.full.wait(self.ring)

    def release(self) -> None:
        """Give the slice back, to the warps that fill it in the whole cluster."""
        self.empty.arrive(self.ring, cta=self.everyone)
        self.ring.advance()


def own_column(k: Builder, item: Item, tiles: TurnedTiles) -> Index:
    """The first column of W of this CTA."""
    return item.w_col + k.cta_rank * tiles.weights if tiles.cluster > 1 else item.w_col
