"""W4A16 on H100 by wgmma: weights become fp16 in registers and are the first operand, as in Machete.

One warp copies slices of A; one or two warp groups load codes, make 64 rows of weights each and multiply them with the
tokens of a tile (`turned`). Weights of one block of k are made while the products of the block before run; two sets of
registers take turns.
"""

from __future__ import annotations

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.gemm.sm90_pipeline import CONSUMER_REGISTERS, PRODUCER_REGISTERS
from heddle.kernels.w4a16.makers import AqlmMaker, AwqMaker, Form, Target
from heddle.kernels.w4a16.shape import TILE_K, W4Problem
from heddle.kernels.w4a16.turned import Tokens, TurnedTiles, own_column
from heddle.lang import Builder, Item, kernel

GROUP_ROWS = 64
"""Of a warp group's wgmma (PTX ISA)."""
PAIR = 2 * TILE_K
"""Elements of k that a turn of the main loop takes: one block for each set of registers."""
SETS = 2
"""Of registers with weights, which take turns."""
CHUNK = 64
"""Tokens that are stored at a time."""
STORE_STAGES = 2
STORE_BARRIER = 2


class Consumers:
    """Groups of warps that make weights and multiply, each with as many columns of W in two sets of registers.

    Today one group has all warps; wefts have groups of four. `g` numbers them.
    """

    def __init__(self, k: Builder, problem: W4Problem, tiles: TurnedTiles, tokens: Tokens, groups: int = 1) -> None:
        self.k, self.problem, self.tiles, self.tokens = k, problem, tiles, tokens
        self.columns = tiles.weights // groups
        warps, suffixes = (
            self.columns // GROUP_ROWS * GROUP_WARPS,
            [f"_g{g}" if groups > 1 else "" for g in range(groups)],
        )
        self.released = [k.ring(f"release{g}", tiles.stages) for g in suffixes]
        shape, grid = (self.columns, TILE_K), (warps, 1)
        self.weights = [
            [k.registers(f"w_{i}{g}", shape, problem.dtype, warps=grid) for i in range(SETS)] for g in suffixes
        ]
        rank = tiles.weights if tiles.cluster > 1 else 0
        targets = [Target(weights, g * self.columns) for g, sets in enumerate(self.weights) for weights in sets]
        form = Form("second", (1, warps), all_targets=True, groups=groups)
        self.maker = (AqlmMaker if problem.looks_up else AwqMaker)(
            k, problem, targets, self.columns, TILE_K, form, rank
        )
        self.acc = [k.registers(f"acc{g}", (self.columns, tiles.tokens), "fp32", warps=grid) for g in suffixes]
        self.c_global = k.tensor("C", (problem.m, problem.n), problem.dtype, role="output")
        size = (min(CHUNK, tiles.tokens), self.columns)
        self.stage = [k.shared(f"out{g}", size, problem.dtype, stages=STORE_STAGES) for g in suffixes]
        self.stages = [k.ring(f"out_ring{g}", STORE_STAGES) for g in suffixes]

    def multiply(self, item: Item, g: int = 0) -> None:
        """A block ahead of the products; a slice goes back when the products of the next one have been started."""
        k, maker, target = self.k, self.maker, SETS * g
        maker.start(item, target)
        maker.block(item, 0, 0, target)
        self._products(g, 0, first=True)
        maker.block(item, 0, 1, target)
        self.tokens.ring.advance()
        for pair in k.range(item.pairs - 1, name="pair"):
            maker.step(item, pair, target)
            for number in range(SETS):
                self._products(g, 1 - number)
                k.mma_wait(pending=1)
                self._release(g)
                maker.block(item, pair + 1, number, target)
                self.tokens.ring.advance()
        self._products(g, 1)
        k.mma_wait(pending=0)
        self.tokens.ring.advance()
        self._release(g)
        self._release(g)

    def _products(self, g: int, number: int, *, first: bool = False) -> None:
        self.tokens.wait()
        weights, tokens = self.weights[g][number], self.tokens.shared[self.tokens.ring]
        self.k.mma(self.acc[g], weights, tokens, accumulate=not first)
        self.k.mma_commit()

    def _release(self, g: int) -> None:
        self.tokens.empty.arrive(self.released[g], cta=self.tokens.everyone)
        self.released[g].advance()

    def store(self, item: Item, g: int = 0) -> None:
        """Registers to shared memory, tokens as rows, and from there by bulk copies."""
        k, col = self.k, own_column(self.k, item, self.tiles) + g * self.columns
        stage, ring = self.stage[g], self.stages[g]
        rows = stage.tile.rows
        for first in range(0, self.tiles.tokens, rows):
            k.tma_store_wait(pending=STORE_STAGES - 1)
            k.sync(STORE_BARRIER + g)
            k.store(stage[ring], self.acc[g].columns(first, rows), transposed=True)
            k.fence()
            k.sync(STORE_BARRIER + g)
            for part in range(0, self.columns, GROUP_ROWS):
                box = stage[ring].part(col=part, cols=GROUP_ROWS)
                k.tma_store(self.c_global[item.row + first, col + part], box)
            ring.advance()


@kernel
def w4_sm90_wgmma(k: Builder, problem: W4Problem, tiles: TurnedTiles, clusters: int) -> None:
    """Persistent; the next tile's slices are copied during the epilogue."""
    k.flops, k.cluster_size = problem.flops, tiles.cluster
    items = tiles.items(problem, clusters)
    k.work_items(items | {"pairs": [problem.k // PAIR] * len(items["row"])}, clusters=clusters)
    warps = tiles.weights // GROUP_ROWS * GROUP_WARPS
    tokens = Tokens(k, problem, tiles, warps)
    consumer = Consumers(k, problem, tiles, tokens)
    with k.role("consumer", warps=warps, registers=CONSUMER_REGISTERS):
        _meet(k, tiles)
        consumer.maker.begin()
        for item in k.work():
            consumer.multiply(item)
            consumer.store(item)
        k.tma_store_wait(pending=0)
        _meet(k, tiles)
    with k.role("producer", warps=1, registers=PRODUCER_REGISTERS):
        _meet(k, tiles)
        for item in k.work():
            tokens.load(item)
        _meet(k, tiles)


def _meet(k: Builder, tiles: TurnedTiles) -> None:
    """Wait until barriers are there, or until no other CTA signals this one any more."""
    if tiles.cluster > 1:
        k.cluster_sync()
    else:
        k.sync()
