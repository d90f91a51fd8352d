"""FlashAttention 4 on B200: two query tiles of 128 rows a CTA, each with a warp group for its softmax.

The matrix warp issues, block by block and tile by tile, O += P V of the block before and S = Q K^T of the next, so that
one tile's softmax runs beside the other's products. S, P (in the columns of S) and O stay in tensor memory. A group of
correction warps rescales O where a maximum grew, and at the end divides by the sums.
"""

from __future__ import annotations

from heddle.kernels.attention.implementation import Implementation
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.kernels.attention.sm100_fa4_config import ROWS, check_fa4, fa4_config, late_tiles, shared_bytes, work_items
from heddle.kernels.attention.sm100_fa4_memory import GROUP_WARPS, Memory, Tile
from heddle.kernels.attention.sm100_fa4_softmax import FIRST_PART, Softmax
from heddle.kernels.attention.softmax import LEAST_SUM
from heddle.lang import Builder, Index, Item, RegisterHandle, kernel

REGISTERS = {64: (200, 64, 48), 128: (192, 80, 48)}
"""What setmaxnreg gives softmax, correction and the other warps, by head size."""
CORRECTION_COLUMNS = 16
"""Columns of O that the correction group has in registers at a time."""


@kernel
def attention_fa4(
    k: Builder, problem: AttentionProblem, config: AttentionConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """Softmax of two tiles, correction, products, loads and stores, each in warps of its own."""
    k.flops = problem.flops
    k.work_items(items, clusters=clusters, schedule=config.order)
    memory = Memory(k, problem, config)
    has = {name: any(items[name]) for name in ("more", "only", "masked", "rescaled", "plain")}
    softmax_registers, correction_registers, other_registers = REGISTERS[problem.head_dim]
    late = late_tiles(problem, config)
    for tile in memory.tiles:
        softmax = Softmax(k, problem, config, memory, tile, late[tile.index])
        with k.role(f"softmax{tile.index}", warps=GROUP_WARPS, registers=softmax_registers):
            k.sync()
            for item in k.work():
                softmax.run(item, has)
    with k.role("correction", warps=GROUP_WARPS, registers=correction_registers):
        Correction(k, problem, memory, late).run(has)
    with k.role("matrix", warps=1, registers=other_registers):
        Matrix(k, memory).run(has)
    with k.role("load", warps=1, registers=other_registers):
        load(k, config, memory, has["more"])
    with k.role("store", warps=1, registers=other_registers):
        store(k, memory)


def load(k: Builder, config: AttentionConfig, memory: Memory, more: bool) -> None:
    """Load both tiles of Q, and K and V block by block from the last visible one to the first."""
    k.sync()
    for item in k.work():
        memory.load_query(memory.tiles[0], item)
        memory.load_block(memory.k_global, item, item.last)
        memory.load_query(memory.tiles[1], item)
        memory.load_block(memory.v_global, item, item.last)
        if more:
            with k.when(item.more):
                for block in k.range(item.more, name="block"):
                    for source in (memory.k_global, memory.v_global):
                        memory.load_block(source, item, item.last - config.tile_n + block * -config.tile_n)
        memory.item.advance()


def store(k: Builder, memory: Memory) -> None:
    """Copy staged tiles of O to global memory, and give their memory back once it is read."""
    copies = memory.d // memory.strip
    k.sync()
    for item in k.work():
        for tile in memory.tiles:
            tile.staged.wait(memory.item)
            memory.store_output(tile, item)
        for tile in memory.tiles:
            k.tma_store_wait(pending=copies * (1 - tile.index))
            tile.sent.arrive(memory.item, by="role")
        memory.item.advance()


class Matrix:
    """The warp that issues all products."""

    def __init__(self, k: Builder, memory: Memory) -> None:
        self.k, self.memory = k, memory

    def run(self, has: dict[str, bool]) -> None:
        """All work items; the products of scores are one block ahead of those of values."""
        k, memory = self.k, self.memory
        k.sync()
        for item in k.work():
            for tile in memory.tiles:
                tile.query_full.wait(memory.item)
                if tile.index == 0:
                    memory.full.wait(memory.blocks)
                self.scores(tile)
            self.release_block()
            if has["more"]:
                with k.when(item.more):
                    for block in k.range(item.more, name="block"):
                        self.step(block)
            for tile in memory.tiles:
                k.mma_commit(tile.query_empty[memory.item])
            if has["more"]:
                with k.when(item.more):
                    self.last(accumulate=True)
            if has["only"]:
                with k.when(item.only):
                    self.last(accumulate=False)
            memory.item.advance()

    def step(self, block: Index) -> None:
        """Values of one block and scores of the next, first tile first; V lies one stage before K."""
        memory = self.memory
        first, second = memory.tiles
        memory.full.wait(memory.blocks)
        self.values(first, block=block)
        memory.blocks.advance()
        memory.full.wait(memory.blocks)
        self.scores(first)
        self.values(second, block=block, behind=True)
        self.k.mma_commit(memory.empty.use(memory.blocks.previous))
        self.scores(second)
        self.release_block()
        memory.step.advance()

    def last(self, accumulate: bool) -> None:
        """Values of the last block; O is complete."""
        memory = self.memory
        memory.full.wait(memory.blocks)
        for tile in memory.tiles:
            self.values(tile, accumulate=accumulate)
            self.k.mma_commit(tile.output_full[memory.item])
        self.release_block()
        memory.step.advance()

    def scores(self, tile: Tile) -> None:
        """Start S = Q K^T; its completion also means that everything before it is complete."""
        memory = self.memory
        self.k.mma(tile.scores[:], tile.query[:], memory.block[memory.blocks], accumulate=False)
        self.k.mma_commit(tile.scores_full[memory.step])

    def values(self, tile: Tile, *, block: Index | None = None, accumulate: bool = True, behind: bool = False) -> None:
        """Start O += P V once three quarters of P are there and O is rescaled, then the rest."""
        k, memory = self.k, self.memory
        values = memory.block[memory.blocks.previous if behind else memory.blocks]
        weights = tile.weights[:]
        tile.weights_full.wait(memory.step)
        k.mma(
            tile.output[:],
            weights.columns(0, FIRST_PART),
            values.part(rows=FIRST_PART),
            first=block,
            accumulate=accumulate,
            transposed=True,
        )
        tile.weights_last.wait(memory.step)
        rest = weights.columns(FIRST_PART, ROWS - FIRST_PART)
        k.mma(tile.output[:], rest, values.part(row=FIRST_PART), transposed=True)

    def release_block(self) -> None:
        """Give the stage that the ring points to back when the products so far are complete."""
        self.k.mma_commit(self.memory.empty[self.memory.blocks])
        self.memory.blocks.advance()


class Correction:
    """The warp group that rescales O, and brings it to shared memory at the end."""

    def __init__(self, k: Builder, problem: AttentionProblem, memory: Memory, late: tuple[bool, bool]) -> None:
        self.k, self.problem, self.memory, self.late = k, problem, memory, late
        self.part = k.registers("part", (ROWS, CORRECTION_COLUMNS), "fp32", warps=(GROUP_WARPS, 1))
        self.factor: RegisterHandle = k.registers("row_factor", (ROWS, 1), "fp32", warps=(GROUP_WARPS, 1))

    def run(self, has: dict[str, bool]) -> None:
        """All work items; O needs no rescaling before its first product."""
        k, memory = self.k, self.memory
        first, second = memory.tiles
        k.sync()
        for tile in memory.tiles:
            tile.weights_full.arrive()
        for item in k.work():
            first.stats_full.wait(memory.stats)
            first.stats_empty.arrive(memory.stats)
            second.stats_full.wait(memory.stats)
            if has["more"]:
                memory.stats.advance()
                self.steps(item, has)
                second.stats_empty.arrive(memory.stats)
            else:
                second.stats_empty.arrive(memory.stats)
                memory.stats.advance()
            for tile in memory.tiles:
                self.finish(tile)
            memory.stats.advance()
            memory.item.advance()

    def steps(self, item: Item, has: dict[str, bool]) -> None:
        """All blocks but the first; those with masks rescale tiles that had no key before."""
        k = self.k
        policies = {"masked": self.late, "rescaled": (True, True), "plain": (False, False)}
        for name, rescales in policies.items():
            if has[name]:
                with k.when(getattr(item, name)):
                    for _ in k.range(getattr(item, name), name=name):
                        self.step(rescales)

    def step(self, rescales: tuple[bool, bool]) -> None:
        """Read the row factors of a block and rescale where the policy says so; else they only pass the check."""
        k, memory = self.k, self.memory
        for tile in memory.tiles:
            tile.stats_full.wait(memory.stats)
            k.load(self.factor, tile.factor[:])
            k.elementwise("check", self.factor, self.factor)
            if rescales[tile.index]:
                self.rescale(tile)
            tile.weights_full.arrive()
            memory.tiles[1 - tile.index].stats_empty.arrive(memory.stats)
        memory.stats.advance()

    def rescale(self, tile: Tile) -> None:
        """Multiply O by the row factors, in tensor memory."""
        k = self.k
        for col in range(0, self.problem.head_dim, CORRECTION_COLUMNS):
            box = tile.output[:].columns(col, CORRECTION_COLUMNS)
            k.load(self.part, box)
            k.elementwise("mul", self.part, self.part, self.factor)
            k.store(box, self.part, wait=col + CORRECTION_COLUMNS == self.problem.head_dim)

    def finish(self, tile: Tile) -> None:
        """Divide O by the sums and put it into shared memory; the next item's first product may then overwrite it."""
        k, memory = self.k, self.memory
        tile.stats_full.wait(memory.stats)
        k.load(self.factor, tile.factor[:])
        tile.stats_empty.arrive(memory.stats)
        k.elementwise("max", self.factor, self.factor, scalars=(LEAST_SUM,))
        k.elementwise("reciprocal", self.factor, self.factor)
        tile.output_full.wait(memory.item)
        tile.sent.wait(memory.item, flip=True)
        for col in range(0, self.problem.head_dim, CORRECTION_COLUMNS):
            k.load(self.part, tile.output[:].columns(col, CORRECTION_COLUMNS))
            k.elementwise("mul", self.part, self.part, self.factor)
            k.store(tile.out[:].part(col=col, cols=CORRECTION_COLUMNS), self.part)
        tile.weights_full.arrive()
        k.fence()
        tile.staged.arrive(memory.item)


FA4 = Implementation(
    schedule="fa4",
    dtypes=("fp16", "bf16"),
    config=fa4_config,
    check=check_fa4,
    shared_bytes=shared_bytes,
    kernel=attention_fa4,
    work_items=work_items,
)
