"""What the W4A16 kernels on A100 have in common: tiles, copies of A, first operands, the epilogue.

Codes are stored in the order in which lanes need them, so that neighbouring bytes of a lane are weights of its own
second operands. Warps lie side by side along n: each weight is made by one warp alone.
"""

from __future__ import annotations

from heddle.kernels._rounding import ceil_div
from heddle.kernels._warp import LANES, REGISTER_BYTES
from heddle.kernels.gemm.epilogue import Output
from heddle.kernels.w4a16.items import CODE_BYTES, WORD, code_bytes
from heddle.kernels.w4a16.shape import STEP_K, TILE_K, W4Config, W4Problem
from heddle.lang import Builder, Index, Item, RegisterHandle

STORE_BARRIER = 1
STAGE_BARRIER = 2
"""The named barrier at which wefts that copy and wefts that multiply meet, where these are not the same."""
LOAD_BYTES = 16
"""That a lane loads at a time, where a stage has as many."""
ADDRESS_REGISTERS = 30
"""Addresses, constants of the unpacking and its temporaries of a thread."""
REGISTER_UNIT = 8
"""Budgets are multiples of this, or all that a thread can have."""
MOST_REGISTERS = 255
ENTRY_REGISTERS = 6
"""Of an entry of a codebook on its way: 16 bytes and its address."""


def operand_rows(problem: W4Problem) -> int:
    """Return the elements of k that are made at a time: a step of mma.sync, or two (an entry of four lanes each)."""
    return 2 * STEP_K if problem.looks_up else STEP_K


def load_steps(problem: W4Problem, config: W4Config) -> int:
    """Return the steps of k whose codes one load of a lane brings: 16 bytes if a stage of AWQ has as many."""
    step_bytes = config.tile_n // config.warps * operand_rows(problem) // WORD * code_bytes(problem) // LANES
    most = 1 if problem.looks_up else TILE_K // STEP_K
    return max(1, min(most, LOAD_BYTES // max(1, step_bytes)))


def thread_registers(problem: W4Problem, config: W4Config) -> int:
    """Return the registers of a thread: sums, two sets of operands, codes, scales, entries on their way, addresses."""
    cols, rows = config.tile_n // config.warps, operand_rows(problem)
    sums = config.tile_m * cols // LANES
    operands = 2 * (config.tile_m * STEP_K + cols * rows) * 2 // (LANES * REGISTER_BYTES)
    codes = cols * TILE_K // WORD * code_bytes(problem) // (LANES * REGISTER_BYTES)
    scales = (1 if problem.looks_up else 4) * max(1, cols // 16)
    entries = cols // 8 * ENTRY_REGISTERS if problem.looks_up else 0
    needed = sums + operands + codes + scales + entries + ADDRESS_REGISTERS
    rounded = ceil_div(needed, REGISTER_UNIT) * REGISTER_UNIT
    return min(rounded, MOST_REGISTERS) if needed <= MOST_REGISTERS else rounded


class MainLoop:
    """Tiles of a CTA, and what is done with them whatever the scheme is.

    All warps copy A; or others do, and `meeting` warps in all meet at each stage.
    """

    def __init__(self, k: Builder, problem: W4Problem, config: W4Config, meeting: int = 0) -> None:
        self.k, self.problem, self.config, self.meeting = k, problem, config, meeting
        gemm = config.gemm(problem.block)
        self.a = k.tensor("A", (problem.m, problem.k), problem.dtype)
        self.code_cols = code_bytes(problem) // CODE_BYTES[problem.scheme]
        self.code_type = "uint16" if CODE_BYTES[problem.scheme] > 1 else "uint8"
        self.codes = k.tensor("Q", (problem.k // WORD, problem.n * self.code_cols), self.code_type)
        output = Output(k, problem.gemm, gemm)
        self.a_shared = k.shared("a", (config.tile_m, TILE_K), problem.dtype, stages=config.stages)
        self.ring = k.ring("load", config.stages)
        self.acc = k.registers("acc", (config.tile_m, config.tile_n), "fp32", warps=gemm.warps)
        self.writer = output.writer("out", self.acc, STORE_BARRIER, gemm.warps)
        first = (config.tile_m, STEP_K)
        self.first = [k.registers(f"a{i}", first, problem.dtype, warps=gemm.warps, spread="first") for i in range(2)]
        sets = 2 * operand_rows(problem) // STEP_K
        self.weights = [self.second(f"w{i}", STEP_K, problem.dtype) for i in range(sets)]
        self.load_steps = load_steps(problem, config)
        rows = self.load_steps * operand_rows(problem)
        loads = range(TILE_K // rows)
        self.words = [self.second(f"q{i}", rows // WORD, self.code_type, self.code_cols) for i in loads]

    def second(self, name: str, rows: int, dtype: str, of_column: int = 1) -> RegisterHandle:
        """Declare a second operand or what it is made of, `of_column` elements for each column of the tile."""
        shape = (rows, self.config.tile_n * of_column)
        return self.k.registers(name, shape, dtype, warps=(1, self.config.warps), spread="second")

    def copy(self, item: Item, at: Index, ahead: int) -> None:
        """Start the copy of A from column `at` on into the stage that is so far ahead."""
        self.k.cp_async(self.a_shared[self.ring + ahead], self.a[item.row, at])

    def start_copies(self, item: Item) -> None:
        """Start copies of all stages but one."""
        if not self.meeting:
            self.copy_ahead(item)

    def next_stage(self, item: Item, at: Index | None) -> None:
        """Wait until the next stage is there, and start the copy that takes the place of the last, if `at` says what.

        `at`: the column of A where the next stage begins.
        """
        if self.meeting:
            self.k.sync(STAGE_BARRIER, warps=self.meeting)
            return
        self.k.cp_async_wait(pending=self.config.stages - 2)
        self.k.sync()
        self.copy_behind(item, at)

    def copy_ahead(self, item: Item) -> None:
        """Start copies of all stages but one."""
        for stage in range(self.config.stages - 1):
            self.copy(item, item.k_begin + stage * TILE_K, stage)
            self.k.cp_async_commit()

    def copy_behind(self, item: Item, at: Index | None) -> None:
        """Start the copy of the youngest stage; an empty group keeps the count of groups behind."""
        ahead = self.config.stages - 1
        if at is not None:
            self.copy(item, at + ahead * TILE_K, ahead)
        self.k.cp_async_commit()

    def load_first(self, step: int) -> None:
        """Load the first operands of a step of the current stage."""
        self.k.load(self.first[step % 2], self.a_shared[self.ring].part(col=step * STEP_K, cols=STEP_K))

    def load_words(self, item: Item, word: Index, number: int) -> None:
        """Load codes number `number` of the stage whose codes begin in row `word`."""
        at = word + number * (self.load_steps * operand_rows(self.problem) // WORD)
        self.k.load(self.words[number], self.codes[at, item.packed_col])
