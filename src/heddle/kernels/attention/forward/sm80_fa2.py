"""FlashAttention 2: one tile of Q a CTA; each warp has its own rows and goes through all keys with mma.sync.

K and V have one block each in shared memory. While the scores of a block are computed its V is copied, and while its
softmax and second product run, K of the next block. All warps meet before a block is overwritten.
"""

from __future__ import annotations

from heddle.kernels.attention.forward.sm80_fa2_config import DEPTH, check_fa2, fa2_config, fa2_work_items, shared_bytes
from heddle.kernels.attention.implementation import Implementation
from heddle.kernels.attention.raster import planes
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.kernels.attention.softmax import OnlineSoftmax
from heddle.lang import Builder, GlobalHandle, Index, Item, SharedHandle, kernel

REGISTERS = 255
"""Of a thread: the most there are. O and a block of scores take up to 192 of them."""


@kernel
def attention_fa2(
    k: Builder, problem: AttentionProblem, config: AttentionConfig, items: dict[str, list[int]], clusters: int
) -> None:
    """Go through the blocks from the last visible one to the first."""
    k.flops = problem.flops
    k.work_items(items, clusters=clusters, schedule=config.order)
    tile = Tile(k, problem, config)
    with k.role("worker", warps=config.groups, registers=REGISTERS):
        for item in k.work():
            tile.start(item)
            tile.score(item, item.last, edge=True)
            for name in ("masked", "plain"):
                if any(items[name]):
                    with k.when(getattr(item, name)):
                        tile.steps(item, name)
            tile.finish_block()
            tile.store(item)


class Tile:
    """The tile of a CTA: Q, the running softmax and O, and the blocks of K and V in turn."""

    def __init__(self, k: Builder, problem: AttentionProblem, config: AttentionConfig) -> None:
        self.k, self.problem, self.config = k, problem, config
        layout, d, dtype = planes(problem, config), problem.head_dim, problem.dtype
        queries = (layout.count, layout.rows, d)
        keys = (problem.batch * problem.heads_kv, problem.seqlen_kv, d)
        self.q_global, self.k_global, self.v_global = (
            k.tensor(name, shape, dtype) for name, shape in (("Q", queries), ("K", keys), ("V", keys))
        )
        self.results(queries)
        self.query = k.shared("q", (config.tile_m, d), dtype)
        self.keys, self.values = (k.shared(name, (config.tile_n, d), dtype) for name in ("k", "v"))
        grid = (config.groups, 1)
        self.scores = k.registers("s", (config.tile_m, config.tile_n), "fp32", warps=grid)
        self.weights = k.registers("p", (config.tile_m, config.tile_n), dtype, warps=grid)
        self.output = k.registers("o", (config.tile_m, d), "fp32", warps=grid)
        self.softmax = OnlineSoftmax(k, "softmax", problem, config.tile_m, grid)

    def results(self, shape: tuple[int, int, int]) -> None:
        """Declare O, of a `shape` of planes, rows and columns, what it passes through, and the logarithms if asked."""
        k, config, dtype = self.k, self.config, self.problem.dtype
        self.o_global = k.tensor("O", shape, dtype, role="output")
        self.lse_global = k.tensor("LSE", (*shape[:2], 1), "fp32", "output") if self.problem.lse else None
        self.rows = k.registers("out", (config.tile_m, self.problem.head_dim), dtype, warps=(config.groups, 1))

    def start(self, item: Item) -> None:
        """Start the copies of Q and of the last block of K."""
        k = self.k
        k.cp_async(self.query[:], self.q_global[item.q_plane, item.row, 0])
        self.copy(item, self.keys, self.k_global, item.last)
        k.fill(self.output)
        self.softmax.begin()

    def copy(self, item: Item, block: SharedHandle, source: GlobalHandle, row: Index) -> None:
        """Start the copy of a block of K or V."""
        self.k.cp_async(block[:], source[item.kv_plane, row, 0])
        self.k.cp_async_commit()

    def meet(self) -> None:
        """Wait until the last copy has arrived and all warps are done with the block before."""
        self.k.cp_async_wait(pending=0)
        self.k.sync()

    def score(self, item: Item, row: Index, *, edge: bool) -> None:
        """S = Q K^T of the block at `row`, while its V is copied; `edge`: keys may lie beyond what a query sees."""
        problem = self.problem
        self.meet()
        self.copy(item, self.values, self.v_global, row)
        self.k.mma(self.scores, self.query[:], self.keys[:], accumulate=False)
        if edge:
            self.k.mask(
                self.scores,
                row=item.row,
                col=row,
                causal=problem.causal,
                limit=problem.seqlen_kv,
                diagonal=problem.diagonal,
            )
        self.meet()

    def finish_block(self) -> None:
        """The softmax of the block and O += P V."""
        k, softmax = self.k, self.softmax
        softmax.maximum(self.scores)
        softmax.rescale(self.output)
        for col in range(0, self.config.tile_n, DEPTH):  # in the portions that the second product reads
            part = self.scores.columns(col, DEPTH)
            softmax.exponentials(part)
            softmax.add(part)
            k.elementwise("cast", self.weights.columns(col, DEPTH), part)
        k.mma(self.output, self.weights, self.values[:], transposed=True)

    def steps(self, item: Item, name: str) -> None:
        """As many blocks as attribute `name` says: finish a block, then compute the scores of the next one."""
        below = self.config.tile_n
        start = item.last if name == "masked" else item.edge
        for block in self.k.range(getattr(item, name), name=name):
            row = start - below + block * -below
            self.copy(item, self.keys, self.k_global, row)
            self.finish_block()
            self.score(item, row, edge=name == "masked")

    def store(self, item: Item) -> None:
        """Divide O by the sums and store it through the memory of Q, so that lanes write 16 bytes side by side."""
        k, softmax = self.k, self.softmax
        softmax.finish()
        softmax.rescale(self.output)
        if self.lse_global is not None:
            k.store(self.lse_global[item.q_plane, item.row, 0], softmax.log_sums())
        k.store(self.query[:], self.output)
        k.sync()
        k.load(self.rows, self.query[:])
        k.store(self.o_global[item.q_plane, item.row, 0], self.rows)


FA2 = Implementation(
    schedule="fa2",
    dtypes=("fp16", "bf16"),
    config=fa2_config,
    check=check_fa2,
    shared_bytes=shared_bytes,
    kernel=attention_fa2,
    work_items=fa2_work_items,
    architecture="sm_80",
)
