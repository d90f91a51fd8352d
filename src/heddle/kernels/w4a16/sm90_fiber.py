"""W4A16 on H100 with FIBER: wefts of their own make weights fp16, as first operands in shared vector registers.

Weights are the rows of a tile and tokens its columns (`turned`). One weft copies slices of A into shared memory; one or
two groups of four make the weights of a block, each weft those of the rows that its subpartition multiplies; as many
groups multiply 64 rows each in lockstep: weights from the pool, tokens from shared memory, fetched once for all four;
four store. A weight is made once for a tile, by wefts that do not multiply. Turns are those of the FIBER-native GEMM.
"""

from __future__ import annotations

from heddle.kernels.gemm.sm90_fiber import Turns
from heddle.kernels.gemm.sm90_fiber_shape import COPY_REGISTERS, TURN_REGISTERS
from heddle.kernels.w4a16.makers import BY_ROWS, GROUP, AqlmMaker, AwqMaker, Target
from heddle.kernels.w4a16.shape import TILE_K, W4Problem
from heddle.kernels.w4a16.turned import Tokens, TurnedTiles, own_column
from heddle.lang import Builder, Item, kernel

ROWS = 64
"""Columns of W that a group multiplies: 16 for each subpartition."""
PART = 64
"""Tokens that are handed over at once: the pool holds one such part for each group."""
MAKE_REGISTERS = 36
"""Registers of a weft that makes weights: codes, values of columns, entries on their way, temporaries."""
STORE_REGISTERS = 28
"""Registers of the role that stores: a part in fp16, and addresses."""
CHUNKS = 2
"""Parts of C in shared memory on their way out."""


class _Roles:
    """What the roles share, and the code of each. `g` numbers the groups that multiply."""

    def __init__(self, k: Builder, problem: W4Problem, tiles: TurnedTiles) -> None:
        self.k, self.tiles = k, tiles
        groups, self.parts = tiles.weights // ROWS, tiles.tokens // PART
        self.tokens = Tokens(k, problem, tiles, GROUP * groups)
        self.weights = [k.pool(f"w_{g}", (ROWS, TILE_K), problem.dtype)[0] for g in range(groups)]
        self.total = [k.pool(f"total_{g}", (ROWS, PART), "fp32")[0] for g in range(groups)]
        self.partial = [
            [k.registers(f"partial_{g}_{part}", (ROWS, PART), "fp32", warps=(GROUP, 1)) for part in range(self.parts)]
            for g in range(groups)
        ]
        targets = [Target(weights, g * ROWS) for g, weights in enumerate(self.weights)]
        rank = tiles.weights if tiles.cluster > 1 else 0
        self.maker = (AqlmMaker if problem.looks_up else AwqMaker)(k, problem, targets, ROWS, TILE_K, BY_ROWS, rank)
        self.turns = Turns(k, groups)
        self.out = k.registers("out", (ROWS, PART), problem.dtype, warps=(GROUP, 1))
        self.c_global = k.tensor("C", (problem.m, problem.n), problem.dtype, role="output")
        self.chunk = k.shared("chunk", (PART, ROWS), problem.dtype, stages=CHUNKS)
        self.chunks = k.ring("chunks", CHUNKS)
        self.chunk_full = k.barrier("chunk_full", arrivals=GROUP, stages=CHUNKS)
        self.chunk_empty = k.barrier("chunk_empty", arrivals=1, stages=CHUNKS)

    def copy(self) -> None:
        """Slices of A; with a cluster the weft stays until no other CTA signals this one any more."""
        k, tokens = self.k, self.tokens
        if self.tiles.cluster > 1:
            k.cluster_sync(warps=1)
        for item in k.work():
            tokens.load(item)
        if self.tiles.cluster > 1:
            for _ in range(self.tiles.stages):
                tokens.empty.wait(tokens.ring, flip=True)
                tokens.ring.advance()

    def multiply(self, item: Item, g: int) -> None:
        """Add up the tile in own registers; the last block hands each part over."""
        k, tokens = self.k, self.tokens
        for kb in k.range(item.k_blocks - 1, name="block"):
            self._begin_block(g)
            for part, partial in enumerate(self.partial[g]):
                k.mma(partial, self.weights[g], tokens.columns(part * PART, PART), first=kb)
            self._end_block(g)
        self._begin_block(g)
        for part, partial in enumerate(self.partial[g]):
            k.mma(self.total[g], self.weights[g], tokens.columns(part * PART, PART), plus=partial)
            k.set_busy_bit(self.total[g], "full")
        self._end_block(g)

    def _begin_block(self, g: int) -> None:
        self.tokens.wait()
        self.turns.take(g)

    def _end_block(self, g: int) -> None:
        self.k.set_busy_bit(self.weights[g], "empty")
        self.turns.give(g)
        self.tokens.release()

    def store(self) -> None:
        """Pool to shared memory, tokens as rows, in the order in which parts are handed over: a group has its turn."""
        k = self.k
        for total in self.total:
            for _ in range(self.parts):
                k.elementwise("cast", self.out, total)
                k.set_busy_bit(total, "empty")
                self.chunk_empty.wait(self.chunks, flip=True)
                k.store(self.chunk[self.chunks], self.out, transposed=True)
                k.fence()
                self.chunk_full.arrive(self.chunks)
                self.chunks.advance()

    def drain(self, item: Item) -> None:
        """Shared to global memory."""
        k, col = self.k, own_column(self.k, item, self.tiles)
        for g in range(len(self.total)):
            for part in range(self.parts):
                self.chunk_full.wait(self.chunks)
                k.tma_store(self.c_global[item.row + part * PART, col + g * ROWS], self.chunk[self.chunks])
                k.tma_store_wait(pending=0)
                self.chunk_empty.arrive(self.chunks)
                self.chunks.advance()


@kernel
def w4_sm90_fiber(k: Builder, problem: W4Problem, tiles: TurnedTiles, clusters: int) -> None:
    """Persistent over the tiles of C; every hand-over between roles is a pool tensor or an mbarrier."""
    k.flops, k.cluster_size = problem.flops, tiles.cluster
    k.work_items(tiles.items(problem, clusters), clusters=clusters)
    roles, groups = _Roles(k, problem, tiles), range(tiles.weights // ROWS)

    made = {f"weights_{g}": GROUP for g in groups}
    k.set_fiber_num(copy=1, drain=1, **{f"multiply_{g}": GROUP for g in groups}, **made, store=GROUP)

    with k.role("copy", window=0, registers=COPY_REGISTERS):
        roles.copy()

    with k.role("drain", window=1, registers=COPY_REGISTERS):
        for item in k.work():
            roles.drain(item)

    for g in groups:
        with k.role(f"multiply_{g}", window=g, registers=tiles.tokens // 2 + TURN_REGISTERS):
            roles.turns.begin(g)
            for item in k.work():
                roles.multiply(item, g)
            roles.turns.end(g)

    for g in groups:
        with k.role(f"weights_{g}", window=g, registers=MAKE_REGISTERS):
            roles.maker.begin(g)
            for item in k.work():
                roles.maker.make(item, g)

    with k.role("store", window=1, registers=STORE_REGISTERS):
        for _ in k.work():
            roles.store()
