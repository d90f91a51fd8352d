"""Epilogue: accumulators go to C through shared memory and bulk stores, or by plain stores; slices of k meet."""

from __future__ import annotations

from collections.abc import Iterable

from heddle.kernels.gemm.place import corner, head_corner, output_corner
from heddle.kernels.gemm.rope import Rotation, table
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.lang import Builder, Item, RegisterHandle, RegisterPart

STORE_ROW_BYTES = 128
"""A bulk store with the 128-byte swizzle writes boxes of at most 128 bytes a row."""
STORE_STAGE_BYTES = 16384
"""Staging memory of one bulk store; two are in flight."""
STORE_STAGES = 2
STORE_REGISTERS = 64
"""Registers of a thread that hold one store's columns on their way from tensor memory: half of its budget."""
FRAGMENT_PAIR_COLUMNS = 16
"""Columns that one stmatrix of four 8 x 8 matrices covers; stores are cut at multiples of it."""
TMA_ALIGNMENT_BYTES = 16
"""Rows of a tensor that TMA reads or writes begin at multiples of 16 bytes (CUDA driver API, tensor maps)."""

Chunks = Iterable[tuple[int, RegisterHandle | RegisterPart]]
"""Pairs of first column and registers, in the order in which they are stored."""
Warps = tuple[int, int]
"""Warps of a role along rows and columns of the tile."""


def uses_tma_store(problem: GemmProblem, config: GemmConfig) -> bool:
    """Return whether C is stored by bulk copies: not on A100, and not where its rows are unaligned."""
    return config.schedule != "multistage" and problem.output_cols * problem.element_bytes % TMA_ALIGNMENT_BYTES == 0


def store_columns(problem: GemmProblem, config: GemmConfig) -> int:
    """Return the accumulator's columns of one store: a divisor of tile_n within a bulk store's limits; all on A100."""
    if config.schedule == "multistage":
        return config.tile_n
    size = problem.element_bytes / (1 + problem.gated)
    limit = int(min(config.tile_n, STORE_ROW_BYTES // size, STORE_STAGE_BYTES // (config.tile_m * size)))
    if config.schedule == "tcgen05":  # a thread has one row of the tile, and each column is a register
        limit = min(limit, STORE_REGISTERS // (1 + problem.rotated))  # cosines and sines of a head take the rest
    step = FRAGMENT_PAIR_COLUMNS * (1 + problem.gated)
    wide = (cols for cols in range(limit // step * step, 0, -step) if config.tile_n % cols == 0)
    return next(wide, min(limit, config.tile_n))


def staging_bytes(problem: GemmProblem, config: GemmConfig) -> int:
    """Return the shared memory that one `Output` takes."""
    if not uses_tma_store(problem, config):
        return 0
    cols = store_columns(problem, config) // (1 + problem.gated)
    return STORE_STAGES * config.tile_m * cols * problem.element_bytes


class Output:
    """C, the staging buffers, and with split-K the workspace of partial sums."""

    def __init__(self, k: Builder, problem: GemmProblem, config: GemmConfig) -> None:
        self.k, self.problem, self.config = k, problem, config
        self.c_global = k.tensor("C", (problem.m, problem.output_cols), problem.dtype, role="output")
        self.angles = table(k, problem)
        self.cols = store_columns(problem, config)
        if config.split_k > 1:
            self.workspace = k.tensor("W", (problem.m, problem.n), "fp32", role="workspace")

    def writer(self, name: str, part: RegisterHandle | None, barrier: int, warps: Warps) -> Writer:
        """Return the code that stores tiles from one role, whose `warps` meet at named barrier `barrier`."""
        return Writer(self, name, part, barrier, warps)

    def part(self, name: str, warps: int) -> RegisterHandle | None:
        """Declare the registers that partial sums come back to; without split-K none are needed."""
        if self.config.split_k == 1:
            return None
        return self.k.registers(name, (self.config.tile_m, self.cols), "fp32", warps=(warps, 1))

    def columns(self, acc: RegisterHandle) -> Chunks:
        """Cut an accumulator into what one store takes."""
        return [(col, acc.columns(col, self.cols)) for col in range(0, self.config.tile_n, self.cols)]


class Writer:
    """Stores tiles from one role; `part` holds the columns that come back from the workspace."""

    def __init__(self, output: Output, name: str, part: RegisterHandle | None, barrier: int, warps: Warps) -> None:
        self.output, self.k, self.part, self.barrier = output, output.k, part, barrier
        config, problem = output.config, output.problem
        self.by_tma = uses_tma_store(problem, config)
        cols = output.cols // 2 if problem.gated else output.cols
        shape = (config.tile_m, cols)
        self.gated = self.k.registers(f"{name}_gated", shape, "fp32", warps=warps) if problem.gated else None
        self.rotation = None
        if output.angles is not None:
            span = min(config.tile_n, problem.head_dim)
            self.rotation = Rotation(self.k, output.angles, name, shape, span // cols, warps)
        if self.by_tma:
            self.stage = self.k.shared(name, shape, problem.dtype, stages=STORE_STAGES)
            self.ring = self.k.ring(f"{name}_ring", STORE_STAGES)

    def prepare(self, item: Item) -> None:
        """Load what the epilogue needs while the item is multiplied; slices of k load it when their sum is there."""
        if self.output.config.split_k == 1:
            self._load_angles(item)

    def _load_angles(self, item: Item) -> None:
        if self.rotation is not None:
            row, col = head_corner(self.k, item, self.output.problem, self.output.config)
            for index in range(len(self.rotation.parts)):
                self.rotation.load(index, row, col + index * self.output.cols)

    def store(self, chunks: Chunks, item: Item) -> None:
        """Store this CTA's tile, or add it to the workspace, whose sum the last slice stores."""
        k, config = self.k, self.output.config
        if config.split_k == 1:
            for col, registers in chunks:
                self._store_chunk(registers, item, col)
            return
        row, first = corner(k, item, config)
        for col, registers in chunks:
            k.store(self.output.workspace[row, first + col], registers, reduce=True)
        assert self.part is not None
        k.sync(self.barrier)
        k.signal(item.semaphore)
        with k.when(item.is_last):
            self._load_angles(item)
            k.wait_semaphore(item.semaphore, value=config.split_k * config.cluster)
            for col in range(0, config.tile_n, self.output.cols):
                k.load(self.part, self.output.workspace[row, first + col])
                self._store_chunk(self.part, item, col)

    def drain(self) -> None:
        """Wait until shared memory may be given up."""
        if self.by_tma:
            self.k.tma_store_wait(pending=0)

    def _store_chunk(self, registers: RegisterHandle | RegisterPart, item: Item, col: int) -> None:
        """Store columns of the product, from the tile's column `col` on; gates are multiplied, pairs rotated first."""
        k, output = self.k, self.output
        row, first = output_corner(k, item, output.problem, output.config)
        if self.gated is not None:
            k.gate(self.gated, registers)
            registers, col = self.gated, col // 2
        if self.rotation is not None:
            self.rotation.rotate(item.rotated, registers, col // self.output.cols)
        target = output.c_global[row, first + col]
        if not self.by_tma:
            k.store(target, registers)
            return
        k.tma_store_wait(pending=STORE_STAGES - 1)
        k.sync(self.barrier)
        k.store(self.stage[self.ring], registers)
        k.fence()
        k.sync(self.barrier)
        k.tma_store(target, self.stage[self.ring])
        self.ring.advance()
