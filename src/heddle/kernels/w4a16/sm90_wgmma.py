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
CHUNK = 64
"""Tokens that are stored at a time."""
STORE_STAGES = 2
STORE_BARRIER = 2


class _Consumer:
    """The warps that make weights and multiply."""

    def __init__(self, k: Builder, problem: W4Problem, tiles: TurnedTiles, tokens: Tokens) -> None:
        self.k, self.problem, self.tiles, self.tokens = k, problem, tiles, tokens
        warps = tiles.weights // GROUP_ROWS * GROUP_WARPS
        self.released = k.ring("release", tiles.stages)
        shape, grid = (tiles.weights, TILE_K), (warps, 1)
        self.weights = [k.registers(f"w_{i}", shape, problem.dtype, warps=grid) for i in range(2)]
        rank = tiles.weights if tiles.cluster > 1 else 0
        targets = [Target(weights, 0) for weights in self.weights]
        self.maker = (AqlmMaker if problem.looks_up else AwqMaker)(
            k, problem, targets, tiles.weights, TILE_K, Form("second", (1, warps), all_targets=True), rank
        )
        self.acc = k.registers("acc", (tiles.weights, tiles.tokens), "fp32", warps=grid)
        self.c_global = k.tensor("C", (problem.m, problem.n), problem.dtype, role="output")
        self.stage = k.shared("out", (min(CHUNK, tiles.tokens), tiles.weights), problem.dtype, stages=STORE_STAGES)
        self.stages = k.ring("out_ring", STORE_STAGES)

    def multiply(self, item: Item) -> None:
        """A block ahead of the products; a slice goes back when the products of the next one have been started."""
        k, maker = self.k, self.maker
        maker.start(item)
        maker.block(item, 0, 0)
        self._products(0, first=True)
        maker.block(item, 0, 1)
        self.tokens.ring.advance()
        for pair in k.range(item.pairs - 1, name="pair"):
            maker.step(item, pair)
            for number in range(2):
                self._products(1 - number)
                k.mma_wait(pending=1)
                self._release()
                maker.block(item, pair + 1, number)
                self.tokens.ring.advance()
        self._products(1)
        k.mma_wait(pending=0)
        self.tokens.ring.advance()
        self._release()
        self._release()

    def _products(self, number: int, *, first: bool = False) -> None:
        self.tokens.wait()
        self.k.mma(self.acc, self.weights[number], self.tokens.shared[self.tokens.ring], accumulate=not first)
        self.k.mma_commit()

    def _release(self) -> None:
        self.tokens.empty.arrive(self.released, cta=self.tokens.everyone)
        self.released.advance()

    def store(self, item: Item) -> None:
        """Registers to shared memory, tokens as rows, and from there by bulk copies."""
        k, col = self.k, own_column(self.k, item, self.tiles)
        rows = self.stage.tile.rows
        for first in range(0, self.tiles.tokens, rows):
            k.tma_store_wait(pending=STORE_STAGES - 1)
            k.sync(STORE_BARRIER)
            k.store(self.stage[self.stages], self.acc.columns(first, rows), transposed=True)
            k.fence()
            k.sync(STORE_BARRIER)
            for part in range(0, self.tiles.weights, GROUP_ROWS):
                box = self.stage[self.stages].part(col=part, cols=GROUP_ROWS)
                k.tma_store(self.c_global[item.row + first, col + part], box)
            self.stages.advance()


@kernel
def w4_sm90_wgmma(k: Builder, problem: W4Problem, tiles: TurnedTiles, clusters: int) -> None:
    """Persistent; the next tile's slices are copied during the epilogue."""
    k.flops, k.cluster_size = problem.flops, tiles.cluster
    items = tiles.items(problem, clusters)
    k.work_items(items | {"pairs": [problem.k // PAIR] * len(items["row"])}, clusters=clusters)
    warps = tiles.weights // GROUP_ROWS * GROUP_WARPS
    tokens = Tokens(k, problem, tiles, warps)
    consumer = _Consumer(k, problem, tiles, tokens)
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
