"""AWQ on A100: A by cp.async into a ring of stages, weights from global memory into registers, fp16 there, mma.sync."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels.w4a16.items import WORD, tail_blocks
from heddle.kernels.w4a16.shape import STEP_K, TILE_K, W4Config, W4Problem
from heddle.kernels.w4a16.sm80_loop import MainLoop, thread_registers
from heddle.lang import Builder, Index, Item, RegisterHandle, kernel

STEPS = TILE_K // STEP_K


@kernel
def awq_sm80(k: Builder, problem: W4Problem, config: W4Config, items: dict[str, list[int]]) -> None:
    """Group by group of k: copies of A run stages - 1 ahead, packed weights one stage, scales one group."""
    k.flops = problem.flops
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    loop = AwqLoop(k, problem, config)
    with k.role("worker", warps=config.warps, registers=thread_registers(problem, config)):
        for item in k.work():
            loop.tile(item, loops=min(items["main"]) > 0)


@dataclass(frozen=True)
class Place:
    """Where a group begins: row of packed weights, row of scales, and column of A, if A is copied during it."""

    word: Index
    group: Index
    k: Index | None = None


class AwqLoop(MainLoop):
    """Groups of weights with scales and zero points."""

    def __init__(self, k: Builder, problem: W4Problem, config: W4Config, meeting: int = 0) -> None:
        super().__init__(k, problem, config, meeting)
        self.stages_of_group, rows = problem.group // TILE_K, problem.k // problem.group
        self.scales, self.zeros = (k.tensor(name, (rows, problem.n), problem.dtype) for name in ("S", "Z"))
        self.scale, self.next_scale = (self.second(name, 1, problem.dtype) for name in ("s", "s_next"))
        self.zero, self.next_zero = (self.second(name, 1, problem.dtype) for name in ("z", "z_next"))

    def tile(self, item: Item, *, loops: bool) -> None:
        """A tile; `loops`: there are groups beside those for which no copy is started."""
        group_size, words = self.problem.group, self.problem.group // WORD
        tail = tail_blocks(self.problem, self.config)
        self.start(item)
        if loops:
            for group in self.k.range(item.main, name="group"):
                at = Place(item.word + group * words, item.group + group, item.k_begin + group * group_size)
                self.group(item, at)
        for number in range(tail):
            at = Place(item.tail_word + number * words, item.tail_group + number)
            self.group(item, at, last=number == tail - 1)
        self.writer.store([(0, self.acc)], item)

    def start(self, item: Item) -> None:
        """Start copies of all stages but one, and load what the first stage needs of the weights."""
        k = self.k
        k.fill(self.acc)
        self.start_copies(item)
        self._load_scales(item, item.group, self.scale, self.zero)
        for number in range(len(self.words)):
            self.load_words(item, item.word, number)

    def group(self, item: Item, at: Place, *, last: bool = False) -> None:
        """Multiply with a group of weights, and load what follows it."""
        for stage in range(self.stages_of_group):
            self.next_stage(item, None if at.k is None else at.k + stage * TILE_K)
            if stage == 0 and not last:
                self._load_scales(item, at.group + 1, self.next_scale, self.next_zero)
            ends = last and stage == self.stages_of_group - 1
            self._stage(item, None if ends else at.word + (stage + 1) * (TILE_K // WORD))
            self.ring.advance()
        if not last:
            self.k.elementwise("copy", self.scale, self.next_scale)
            self.k.elementwise("copy", self.zero, self.next_zero)

    def _stage(self, item: Item, following: Index | None) -> None:
        """Step by step unpack weights, load those of the next stage in their place, multiply."""
        k = self.k
        self.load_first(0)
        for step in range(STEPS):
            if step + 1 < STEPS:
                self.load_first(step + 1)
            number, part = divmod(step, self.load_steps)
            weights = self.weights[step % 2]
            k.dequantize(weights, self.words[number], self.scale, self.zero, row=part * STEP_K // WORD)
            if following is not None and part == self.load_steps - 1:
                self.load_words(item, following, number)
            k.mma(self.acc, self.first[step % 2], weights, transposed=True)

    def _load_scales(self, item: Item, group: Index, scale: RegisterHandle, zero: RegisterHandle) -> None:
        self.k.load(scale, self.scales[group, item.col])
        self.k.load(zero, self.zeros[group, item.col])
