"""AQLM on A100: A by cp.async into a ring of stages, weights by look-ups in codebooks, mma.sync.

The codebook of 65,536 entries stays in global memory (1 MB, in L2), two of 256 lie in shared memory, in eight copies.
Look-ups run one step of 32 elements of k ahead of the products, codes one stage ahead of the look-ups.
"""

from __future__ import annotations

from heddle.kernels.w4a16.items import WORD, tail_blocks
from heddle.kernels.w4a16.shape import BOOKS, COPIES, ENTRIES, STEP_K, TILE_K, W4Config, W4Problem
from heddle.kernels.w4a16.sm80_loop import MainLoop, operand_rows, thread_registers
from heddle.lang import Builder, GlobalBox, Index, Item, SharedBox, kernel


@kernel
def aqlm_sm80(k: Builder, problem: W4Problem, config: W4Config, items: dict[str, list[int]]) -> None:
    """Stage by stage: copies of A run stages - 1 ahead, look-ups one step."""
    k.flops = problem.flops
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    loop = AqlmLoop(k, problem, config)
    with k.role("worker", warps=config.warps, registers=thread_registers(problem, config)):
        for item in k.work():
            loop.tile(item, loops=min(items["main"]) > 0)


class AqlmLoop(MainLoop):
    """Stages of weights from codebooks."""

    def __init__(self, k: Builder, problem: W4Problem, config: W4Config, meeting: int = 0) -> None:
        super().__init__(k, problem, config, meeting)
        entries = ENTRIES[problem.scheme]
        self.books = BOOKS[problem.scheme]
        self.scales = k.tensor("S", (1, problem.n), problem.dtype)
        self.scale = self.second("s", 1, problem.dtype)
        self.book = k.tensor("K", (entries, WORD), problem.dtype)
        self.book_shared = None
        if self.books > 1:
            self.book_shared = k.shared("book", (entries, COPIES * WORD), problem.dtype)

    @property
    def codebook(self) -> SharedBox | GlobalBox:
        """Where entries are looked up."""
        return self.book_shared[:] if self.book_shared else self.book[0, 0]

    def tile(self, item: Item, *, loops: bool) -> None:
        """A tile; `loops`: there are blocks beside those for which no copy is started."""
        tail, words = tail_blocks(self.problem, self.config), TILE_K // WORD
        self.start(item)
        if loops:
            for block in self.k.range(item.main, name="block"):
                self.stage(item, item.word + block * words, item.k_begin + block * TILE_K)
        for number in range(tail):
            self.stage(item, item.tail_word + number * words, None, left=tail - 1 - number)
        self.writer.store([(0, self.acc)], item)

    def copy_books(self) -> None:
        """Start copies of the codebooks that lie in shared memory."""
        if self.book_shared:
            for copy in range(COPIES):
                self.k.cp_async(self.book_shared[:].part(col=copy * WORD, cols=WORD), self.book[0, 0])
            self.k.cp_async_commit()

    def start(self, item: Item) -> None:
        """Start copies of the codebooks and of all stages but one, load codes, and look up the first step."""
        k, ahead = self.k, self.config.stages - 1
        k.fill(self.acc)
        if not self.meeting:  # else once for all tiles
            self.copy_books()
        self.start_copies(item)
        k.load(self.scale, self.scales[0, item.col])
        for number in range(len(self.words)):
            self.load_words(item, item.word, number)
        if self.book_shared and not self.meeting:
            k.cp_async_wait(pending=ahead)
            k.sync()
        self._look_up(0)
        if self.problem.k > TILE_K:
            self.load_words(item, item.word + TILE_K // WORD, 0)

    def stage(self, item: Item, word: Index, at: Index | None, left: int = 2) -> None:
        """Multiply with a stage of weights; `left`: stages that follow, if they are fewer than two."""
        self.next_stage(item, at)
        steps, rows = len(self.words), operand_rows(self.problem)
        for step in range(steps):
            following = (step + 1) % steps
            stages_on = (step + 1) // steps
            if stages_on <= left:
                self._look_up(following)
            if stages_on + 1 <= left:
                self.load_words(item, word + (stages_on + 1) * (TILE_K // WORD), following)
            for half in range(rows // STEP_K):
                self._multiply(2 * step + half)
        self.ring.advance()

    def _look_up(self, step: int) -> None:
        pair = (self.weights[2 * (step % 2)], self.weights[2 * (step % 2) + 1])
        self.k.look_up(pair, self.words[step], self.scale, self.codebook, books=self.books)

    def _multiply(self, step: int) -> None:
        """Load the first operands of the next step, and multiply with those of this one."""
        if step == 0:
            self.load_first(0)
        if step + 1 < TILE_K // STEP_K:
            self.load_first(step + 1)
        self.k.mma(self.acc, self.first[step % 2], self.weights[step % 4], transposed=True)
