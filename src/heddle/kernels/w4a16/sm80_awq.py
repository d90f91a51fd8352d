"""AWQ on A100: A by cp.async into a ring of stages, weights from global memory into registers, fp16 there, mma.sync.

Packed weights are stored in the order in which lanes need them, so that 16 bytes of a lane are 32 weights of its own
second operands. Warps lie side by side along n: each weight is unpacked by one warp alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels.gemm.epilogue import Output
from heddle.kernels.w4a16.items import WORD, WORD_BYTES, tail_groups
from heddle.kernels.w4a16.shape import STEP_K, TILE_K, W4Config, W4Problem
from heddle.lang import Builder, Index, Item, RegisterHandle, kernel

STORE_BARRIER = 1
LANES = 32
STEPS = TILE_K // STEP_K
LOAD_BYTES = 16
"""That a lane loads at a time, where a stage has as many."""
ADDRESS_REGISTERS = 30
"""Addresses, constants of the unpacking and its temporaries of a thread."""
REGISTER_UNIT = 8
"""Budgets are multiples of this, or all that a thread can have."""
MOST_REGISTERS = 255


def load_steps(config: W4Config) -> int:
    """Return the steps of k whose packed weights one load of a lane brings: 16 bytes if a stage has as many."""
    step_bytes = config.tile_n // config.warps * STEP_K // WORD * WORD_BYTES // LANES
    return max(1, min(STEPS, LOAD_BYTES // step_bytes))


def thread_registers(config: W4Config) -> int:
    """Return the registers of a thread: sums, two sets of operands, packed weights, two sets of scales, addresses."""
    cols = config.tile_n // config.warps
    sums = config.tile_m * cols // LANES
    operands = 2 * (config.tile_m + cols) * STEP_K * 2 // (LANES * WORD_BYTES)
    packed = cols * TILE_K // WORD // LANES
    scales = 4 * max(1, cols // 16)
    needed = sums + operands + packed + scales + ADDRESS_REGISTERS
    rounded = -(-needed // REGISTER_UNIT) * REGISTER_UNIT
    return min(rounded, MOST_REGISTERS) if needed <= MOST_REGISTERS else rounded


@kernel
def awq_sm80(k: Builder, problem: W4Problem, config: W4Config, items: dict[str, list[int]]) -> None:
    """Group by group of k: copies of A run stages - 1 ahead, packed weights one stage, scales one group."""
    k.flops = problem.flops
    k.work_items(items, clusters=len(items["row"]), schedule="launch")
    loop = MainLoop(k, problem, config)
    tail, words = tail_groups(problem, config), problem.group // WORD
    with k.role("worker", warps=config.warps, registers=thread_registers(config)):
        for item in k.work():
            loop.start(item)
            if min(items["main"]) > 0:
                for group in k.range(item.main, name="group"):
                    at = Place(item.word + group * words, item.group + group, item.k_begin + group * problem.group)
                    loop.group(item, at)
            for number in range(tail):
                at = Place(item.tail_word + number * words, item.tail_group + number)
                loop.group(item, at, last=number == tail - 1)
            loop.writer.store([(0, loop.acc)], item)


@dataclass(frozen=True)
class Place:
    """Where a group begins: row of packed weights, row of scales, and column of A, if A is copied during it."""

    word: Index
    group: Index
    k: Index | None = None


class MainLoop:
    """Tiles of a CTA, and what is done with them."""

    def __init__(self, k: Builder, problem: W4Problem, config: W4Config) -> None:
        self.k, self.config = k, config
        self.stages_of_group, rows = problem.group // TILE_K, problem.k // problem.group
        self.a = k.tensor("A", (problem.m, problem.k), problem.dtype)
        self.packed = k.tensor("Q", (problem.k // WORD, problem.n * WORD_BYTES), "uint8")
        self.scales, self.zeros = (k.tensor(name, (rows, problem.n), problem.dtype) for name in ("S", "Z"))
        gemm = config.gemm(problem.group)
        output = Output(k, problem.gemm, gemm)
        self.a_shared = k.shared("a", (config.tile_m, TILE_K), problem.dtype, stages=config.stages)
        self.ring = k.ring("load", config.stages)
        self.acc = k.registers("acc", (config.tile_m, config.tile_n), "fp32", warps=gemm.warps)
        self.writer = output.writer("out", self.acc, STORE_BARRIER, gemm.warps)
        first = (config.tile_m, STEP_K)
        self.first = [k.registers(f"a{i}", first, problem.dtype, warps=gemm.warps, spread="first") for i in range(2)]
        self.weights = [self._columns(f"w{i}", STEP_K, problem.dtype) for i in range(2)]
        self.load_steps = load_steps(config)
        words = self.load_steps * STEP_K // WORD
        loads = range(STEPS // self.load_steps)
        self.words = [self._columns(f"q{i}", words, "uint8", WORD_BYTES) for i in loads]
        self.scale, self.next_scale = (self._columns(name, 1, problem.dtype) for name in ("s", "s_next"))
        self.zero, self.next_zero = (self._columns(name, 1, problem.dtype) for name in ("z", "z_next"))

    def _columns(self, name: str, rows: int, dtype: str, of_column: int = 1) -> RegisterHandle:
        shape = (rows, self.config.tile_n * of_column)
        return self.k.registers(name, shape, dtype, warps=(1, self.config.warps), spread="second")

    def start(self, item: Item) -> None:
        """Start copies of all stages but one, and load what the first stage needs of the weights."""
        k = self.k
        k.fill(self.acc)
        for stage in range(self.config.stages - 1):
            self._copy(item, item.k_begin + stage * TILE_K, stage)
            k.cp_async_commit()
        self._load_scales(item, item.group, self.scale, self.zero)
        for number in range(len(self.words)):
            self._load_words(item, item.word, number)

    def group(self, item: Item, at: Place, *, last: bool = False) -> None:
        """Multiply with a group of weights, and load what follows it."""
        ahead = self.config.stages - 1
        for stage in range(self.stages_of_group):
            self.k.cp_async_wait(pending=ahead - 1)
            self.k.sync()
            if at.k is not None:
                self._copy(item, at.k + (stage + ahead) * TILE_K, ahead)
            self.k.cp_async_commit()  # an empty group keeps the count of groups behind
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
        self._load_first(0)
        for step in range(STEPS):
            if step + 1 < STEPS:
                self._load_first(step + 1)
            number, part = divmod(step, self.load_steps)
            weights = self.weights[step % 2]
            k.dequantize(weights, self.words[number], self.scale, self.zero, row=part * STEP_K // WORD)
            if following is not None and part == self.load_steps - 1:
                self._load_words(item, following, number)
            k.mma(self.acc, self.first[step % 2], weights, transposed=True)

    def _load_first(self, step: int) -> None:
        self.k.load(self.first[step % 2], self.a_shared[self.ring].part(col=step * STEP_K, cols=STEP_K))

    def _copy(self, item: Item, at: Index, ahead: int) -> None:
        self.k.cp_async(self.a_shared[self.ring + ahead], self.a[item.row, at])

    def _load_scales(self, item: Item, group: Index, scale: RegisterHandle, zero: RegisterHandle) -> None:
        self.k.load(scale, self.scales[group, item.col])
        self.k.load(zero, self.zeros[group, item.col])

    def _load_words(self, item: Item, word: Index, number: int) -> None:
        at = word + number * (self.load_steps * STEP_K // WORD)
        self.k.load(self.words[number], self.packed[at, item.packed_col])
