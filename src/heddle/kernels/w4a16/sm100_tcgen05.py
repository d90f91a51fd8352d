"""W4A16 on B200 by tcgen05: weights become fp16 in registers and go into tensor memory, as in CUTLASS's mixed GEMM.

The weights are the rows of a tile and tokens its columns (`turned`). One warp copies slices of A into shared memory,
one codes (`copied`); four or eight make 128 columns of W, 128 elements of k a stage, and store them to a ring in tensor
memory; one multiplies, four store. A pair of CTAs shares the tokens: each copies half of them, the leader issues for
both. Sums of up to 192 tokens lie in tensor memory twice, so that one tile is stored while the next one grows.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels._warp import GROUP_WARPS
from heddle.kernels.w4a16.copied import BLOCKS, PAIR, Copied
from heddle.kernels.w4a16.shape import TILE_K, W4Problem
from heddle.kernels.w4a16.turned import TurnedTiles, own_column
from heddle.lang import Builder, Cta, Item, kernel

WEIGHTS = 128
"""Columns of W that a CTA makes: the rows of a product, a lane of tensor memory each."""
CHUNK = 32
"""Tokens that are stored at a time."""
PAIR_COLUMNS = PAIR // 2
"""Of tensor memory, 32 bits wide, that the weights of a pair of blocks take."""
REGISTERS = {1: 184, 2: 136}
"""A thread of any role, by groups that make weights: codes, values, entries on their way, weights; of 65,536."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Tiles, groups of warps that make weights, and the places of sums and of weights in tensor memory."""

    tiles: TurnedTiles
    groups: int
    sums: int
    blocks: int


class Roles:
    """What the roles share, and the code of each for one tile."""

    def __init__(self, k: Builder, problem: W4Problem, plan: Plan) -> None:
        self.k, self.plan, self.tiles = k, plan, plan.tiles
        ctas = self.ctas = plan.tiles.cluster
        self.owner: Cta = "leader" if ctas > 1 else "own"
        self.everyone: Cta = "all" if ctas > 1 else "own"
        self.a_global = k.tensor("A", (problem.m, problem.k), problem.dtype)
        self.c_global = k.tensor("C", (problem.m, problem.n), problem.dtype, role="output")
        stages = plan.tiles.stages
        self.rows = plan.tiles.tokens // ctas
        self.a = [k.shared(f"a_{i}", (self.rows, TILE_K), problem.dtype, stages=stages) for i in range(BLOCKS)]
        self.ring, self.full = k.ring("ring", stages), k.barrier("full", arrivals=ctas, stages=stages)
        self.empty = k.barrier("empty", arrivals=1, stages=stages)
        self.weights = k.tensor_memory("w", (WEIGHTS, PAIR), problem.dtype, stages=plan.blocks)
        self.made = k.ring("made", plan.blocks)
        self.w_full = k.barrier("w_full", arrivals=GROUP_WARPS * plan.groups * ctas, stages=plan.blocks)
        self.w_empty = k.barrier("w_empty", arrivals=1, stages=plan.blocks)
        self.acc = k.tensor_memory("acc", (WEIGHTS, plan.tiles.tokens), "fp32", stages=plan.sums)
        self.sums = k.ring("sums", plan.sums)
        self.acc_full = k.barrier("acc_full", arrivals=1, stages=plan.sums)
        self.acc_empty = k.barrier("acc_empty", arrivals=GROUP_WARPS * ctas, stages=plan.sums)
        self.fresh = [k.registers(f"w_{i}", (WEIGHTS, TILE_K), problem.dtype, warps=(GROUP_WARPS, 1)) for i in range(2)]
        self.maker = Copied(k, problem, WEIGHTS, WEIGHTS if ctas > 1 else 0, stages, plan.groups)
        self.part = k.registers("part", (WEIGHTS, CHUNK), "fp32", warps=(GROUP_WARPS, 1))

    def load(self, item: Item) -> None:
        """Slices of A to shared memory, this CTA's part of the tokens, as far ahead as the ring allows."""
        k, ring = self.k, self.ring
        row = item.row + k.cta_rank * self.rows if self.ctas > 1 else item.row
        for pair in k.range(item.pairs, name="slice"):
            self.empty.wait(ring, flip=True)
            self.full.expect(ring, bytes=BLOCKS * self.a[0].stage_bytes, cta=self.owner)
            for number, block in enumerate(self.a):
                box = self.a_global[row, pair * PAIR + number * TILE_K]
                k.tma_load(block[ring], box, self.full.use(ring, cta=self.owner))
            ring.advance()

    def copy(self, item: Item) -> None:
        """Codes to shared memory."""
        self.maker.copy(item)

    def make_0(self, item: Item) -> None:
        """What the first group of warps makes."""
        self._make(item, 0)

    def make_1(self, item: Item) -> None:
        """What the second group of warps makes."""
        self._make(item, 1)

    def _make(self, item: Item, group: int) -> None:
        """Weights stage by stage: one group both blocks of each, or two groups a block each."""
        k, blocks = self.k, range(group, BLOCKS, self.plan.groups)
        for _ in k.range(item.pairs, name="pair"):
            self.maker.load(group, blocks)
            for number in blocks:
                self.maker.make(self.fresh[number], group, number)
                if number == blocks[0]:
                    self.w_empty.wait(self.made, flip=True)
                target = self.weights[self.made].columns(number * TILE_K, TILE_K)
                k.store(target, self.fresh[number], wait=number == blocks[-1])
            self.w_full.arrive(self.made, cta=self.owner)
            self.made.advance()

    def multiply(self, item: Item) -> None:
        """Issue the products of a tile, for both CTAs of a pair."""
        k, sums, made, ring = self.k, self.sums, self.made, self.ring
        self.acc_empty.wait(sums, flip=True)
        for pair in k.range(item.pairs, name="pair"):
            self.full.wait(ring)
            self.w_full.wait(made)
            for number, block in enumerate(self.a):
                weights = self.weights[made].columns(number * TILE_K, TILE_K)
                first = pair if number == 0 else None
                k.mma(self.acc[sums], weights, block[ring], first=first, ctas=self.ctas)
            k.mma_commit(self.empty.use(ring, cta=self.everyone))
            k.mma_commit(self.w_empty.use(made, cta=self.everyone))
            k.advance(ring, made)
        k.mma_commit(self.acc_full.use(sums, cta=self.everyone))
        sums.advance()

    def store(self, item: Item) -> None:
        """Tensor to global memory, tokens as rows: the lanes of a warp are neighbours there."""
        k, sums, col = self.k, self.sums, own_column(self.k, item, self.tiles)
        self.acc_full.wait(sums)
        for first in range(0, self.tiles.tokens, CHUNK):
            k.load(self.part, self.acc[sums].columns(first, CHUNK))
            if first + CHUNK == self.tiles.tokens:
                self.acc_empty.arrive(sums, cta=self.owner)
            k.store(self.c_global[item.row + first, col], self.part, transposed=True)
        sums.advance()


@kernel
def w4_sm100_tcgen05(k: Builder, problem: W4Problem, plan: Plan, clusters: int) -> None:
    """Persistent; weights and tokens of the next tile come while a tile is stored."""
    k.flops, k.cluster_size = problem.flops, plan.tiles.cluster
    items = plan.tiles.items(problem, clusters)
    k.work_items(items | {"pairs": [problem.k // PAIR] * len(items["row"])}, clusters=clusters)
    roles = Roles(k, problem, plan)
    meet = k.cluster_sync if plan.tiles.cluster > 1 else k.sync
    makers = {f"make_{group}": GROUP_WARPS for group in range(plan.groups)}
    warps = {"store": GROUP_WARPS, **makers, "load": 1, "copy": 1, "multiply": 1}
    for name, count in warps.items():
        pair = name == "multiply" and plan.tiles.cluster > 1
        with k.role(name, warps=count, registers=REGISTERS[plan.groups], leader_only=pair):
            meet()
            if name in makers:
                roles.maker.begin(int(name[-1]))
            for item in k.work():
                getattr(roles, name)(item)
            meet()
