"""GEMM on A100 with wefts, but without full and empty bits: roles meet at named barriers, products are mma.sync.

Four wefts for each stage of a ring in shared memory copy slices of A and B there, tile after tile; two groups of four
multiply half of the rows each, loading fragments by ldmatrix as today's warps do, and store their sums. A stage is
filled again as soon as both groups have read it, and the next tile's slices come while this one is stored. No weft
reads a register of another, with or without registers that a subpartition shares.

A100 has no mbarriers to wait at: a stage has a named barrier for "full" of each group and one for "empty", at which one
side arrives and the other waits; at one barrier for both groups they would wait for each other. Barriers have fixed
numbers, so loops go round the ring, and k in whole turns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from heddle.kernels._rounding import ceil_div
from heddle.kernels.gemm.epilogue import Output, Writer
from heddle.kernels.gemm.raster import work_items
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.kernels.gemm.sm80 import lane_bytes
from heddle.lang import Builder, Index, Item, kernel

WEFTS = 4
"""Of a role: one a subpartition."""
GROUPS = 2
"""Roles that multiply, one a window."""
GIVERS = WEFTS * (1 + GROUPS)
"""Wefts at the barrier of an empty stage: those that copy, and those of all groups."""
READERS = 2 * WEFTS
"""Wefts at the barrier of a full stage: those that copy, and those of a group."""
FIRST_BARRIER = 2
"""Named barriers below are those of other uses (0: the CTA's; 1: stores)."""
BEGIN_REGISTERS = 4
COPY_REGISTERS = 20
"""Addresses and counters of a weft that copies."""
WORK_REGISTERS = 208
"""Of a weft that multiplies: what its window has beside the wefts that copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberPhased80Config:
    """Tiles of `tile_m` x `tile_n`, half of the rows a group; `stages` slices of `tile_k` columns."""

    tile_m: int
    tile_n: int
    tile_k: int
    stages: int

    def label(self) -> str:
        """Return a short name, as in `fiber-phased 256x128x32 s4`."""
        return f"fiber-phased {self.tile_m}x{self.tile_n}x{self.tile_k} s{self.stages}"

    @property
    def half(self) -> GemmConfig:
        """What a group of four wefts does, as a configuration of today's kernel: of even parts, the squarest."""
        rows = self.tile_m // GROUPS
        grids = [
            (down, WEFTS // down)
            for down in (1, 2, 4)
            if rows % (16 * down) == 0 and self.tile_n % (16 * (WEFTS // down)) == 0
        ] or [(2, 2)]
        return GemmConfig(
            schedule="multistage",
            tile_m=rows,
            tile_n=self.tile_n,
            tile_k=self.tile_k,
            stages=self.stages,
            warps=min(grids, key=lambda grid: rows // grid[0] + self.tile_n // grid[1]),
        )

    @property
    def whole(self) -> GemmConfig:
        """The tile of both groups, as a configuration of today's kernel."""
        return replace(self.half, tile_m=self.tile_m)

    def items(self, problem: GemmProblem, wave: int) -> dict[str, list[int]]:
        """Return the work items in the order of today's kernel; `turns` of the ring, with zeros beyond k."""
        items = work_items(problem, self.whole, wave, wave)
        return items | {"turns": [max(2, ceil_div(blocks, self.stages)) for blocks in items["k_blocks"]]}


class _Rows:
    """A work item as a group sees it: its rows begin further down."""

    def __init__(self, item: Item, first: int) -> None:
        self._item, self.row = item, item.row + first

    def __getattr__(self, name: str) -> Index:
        found: Index = getattr(self._item, name)
        return found


class _Ring:
    """Slices of A and B, with the named barriers of each stage."""

    def __init__(self, k: Builder, problem: GemmProblem, config: FiberPhased80Config) -> None:
        self.k, self.config, self.width = k, config, lane_bytes(problem)
        self.a_global = k.tensor("A", (problem.m, problem.k), problem.dtype)
        self.b_global = k.tensor("B", (problem.n, problem.k), problem.dtype)
        self.a = k.shared("a", (config.tile_m, config.tile_k), problem.dtype, stages=config.stages)
        self.b = k.shared("b", (config.tile_n, config.tile_k), problem.dtype, stages=config.stages)
        self.ring = k.ring("ring", config.stages)

    def full(self, stage: int, g: int) -> int:
        """The named barrier that says to a group that a slice has been copied."""
        return self.empty(stage) + 1 + g

    def empty(self, stage: int) -> int:
        """The named barrier that says that a slice has been read."""
        return FIRST_BARRIER + stage * (1 + GROUPS)

    def copy(self, item: Item, stage: int) -> None:
        """All slices of a tile that come to a stage."""
        k, config, ring = self.k, self.config, self.ring
        for turn in k.range(item.turns, name="turn"):
            at = turn * (config.stages * config.tile_k) + stage * config.tile_k
            k.sync(self.empty(stage), warps=GIVERS)
            k.cp_async(self.a[ring + stage], self.a_global[item.row, at], bytes_per_lane=self.width)
            k.cp_async(self.b[ring + stage], self.b_global[item.col, at], bytes_per_lane=self.width)
            k.cp_async_commit()
            k.cp_async_wait(pending=0)
            for g in range(GROUPS):
                k.arrive(self.full(stage, g), warps=READERS)
            for _ in range(config.stages):  # once round: the same stage again
                ring.advance()


@kernel
def gemm_sm80_fiber_phased(
    k: Builder, problem: GemmProblem, config: FiberPhased80Config, items: dict[str, list[int]], threads: int
) -> None:
    """Persistent over the tiles of C, one FIBER-thread an SM."""
    k.flops = problem.flops
    k.work_items(items, clusters=threads)
    memory, half = _Ring(k, problem, config), config.half
    output = Output(k, problem, half)
    sums = [k.registers(f"sums{g}", (half.tile_m, half.tile_n), "fp32", warps=half.warps) for g in range(GROUPS)]
    writers = [output.writer(f"out{g}", sums[g], 1, half.warps) for g in range(GROUPS)]
    copies = {f"copy{stage}": WEFTS for stage in range(config.stages)}
    k.set_fiber_num(begin=1, **copies, **{f"multiply{g}": WEFTS for g in range(GROUPS)})

    with k.role("begin", registers=BEGIN_REGISTERS):  # the weft that a FIBER-thread starts with
        pass

    for stage, name in enumerate(copies):
        with k.role(name, window=stage % GROUPS, registers=COPY_REGISTERS):
            for item in k.work():
                memory.copy(item, stage)

    for g in range(GROUPS):
        with k.role(f"multiply{g}", window=g, registers=WORK_REGISTERS):
            for stage in range(config.stages):
                k.arrive(memory.empty(stage), warps=GIVERS)
            for item in k.work():
                _multiply(k, memory, _Rows(item, g * half.tile_m), g, writers[g])


def _multiply(k: Builder, memory: _Ring, item: _Rows, g: int, writer: Writer) -> None:
    """A group's rows of a tile."""
    half, ring, sums = memory.config.half, memory.ring, writer.part
    assert sums is not None

    def turn() -> None:
        for stage in range(half.stages):
            k.sync(memory.full(stage, g), warps=READERS)
            k.mma(sums, memory.a[ring].part(row=g * half.tile_m, rows=half.tile_m), memory.b[ring])
            k.arrive(memory.empty(stage), warps=GIVERS)
            ring.advance()

    k.fill(sums)
    for _ in k.range(item.turns - 1, name="turn"):
        turn()
    turn()
    writer.prepare(item)  # type: ignore[arg-type]
    writer.store([(0, sums)], item)  # type: ignore[arg-type]
