"""RMS normalisation with FIBER: rows arrive in shared registers while those before them are normalised.

A working weft reads a row twice where it lies in the pool, for its mean square and for the result, and gives it back
block by block in the second reading: loads of another row fill the blocks meanwhile. With a residual it adds both
tensors into a row of its own, so that the pool is free again before the row is normalised. Weights are loaded once and
lie once in the registers of an SM, a quarter in each subpartition, where all working wefts read them. Where no register
of another subpartition can be read, each working weft has all of them in registers of its own, or loads them, block by
block, for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._limits import check_item_count
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels._rounding import ceil_div
from heddle.kernels._streams import (
    TILE,
    WEFTS,
    Needs,
    Slot,
    StreamConfig,
    candidates,
    check_config,
    stream,
    unit_items,
    used_slots,
)
from heddle.kernels.norm.fiber_weights import BLOCK_REGISTERS, OwnRows, PooledRows, Weights
from heddle.kernels.norm.rmsnorm import BLOCK, WORKING_REGISTERS, Rows, blocks, row_registers
from heddle.kernels.norm.shape import NormProblem
from heddle.lang import Builder, RegisterHandle, kernel
from heddle.machine.spec import Machine

Place = Literal["pool", "own", "loaded"]
"""Where weights are: once in an SM, in registers of each working weft, or in L2, from where each row has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NormStream(StreamConfig):
    """Pairs of roles and units in the pool, and where the weights are."""

    weights: Place = "pool"

    def label(self) -> str:
        """Return a short name, as in `fiber g2 s2` or `fiber g2 s1 own weights`."""
        name = f"fiber g{self.groups} s{self.stages}"
        return name if self.weights == "pool" else f"{name} {self.weights} weights"


@kernel
def rmsnorm_fiber(k: Builder, problem: NormProblem, config: NormStream, machine: Machine) -> None:
    """A unit is a row of each of four wefts."""
    k.flops = problem.flops
    items, threads = unit_items({"row": range(0, problem.rows, WEFTS)}, config, machine)
    k.work_items(items, clusters=threads)
    norm = Norm(k, problem, config.weights, used_slots(config, items))
    stream(k, config, items, needs(problem, config.weights), norm.load, norm.work, norm.begin_load, norm.begin_work)


class Norm:
    """The roles' code."""

    def __init__(self, k: Builder, problem: NormProblem, place: Place, slots: Sequence[tuple[int, int]]) -> None:
        self.k = k
        shape, dtype = (problem.rows, problem.hidden), problem.dtype
        self.inputs = {"x": k.tensor("X", shape, dtype)}
        groups = sorted({group for group, _ in slots})
        self.weights = Weights(k, problem, groups) if place == "pool" else None
        self.rows: dict[int, Rows] = {}
        if self.weights is not None:
            self.rows = {g: PooledRows(k, problem, self.weights.source, g, self.weights) for g in groups}
        else:
            source = k.tensor("W", (1, problem.hidden), dtype)
            kind = OwnRows if place == "own" else Rows
            self.rows = {g: kind(k, problem, WEFTS, source, f"_{g}") for g in groups}
        self.sums: dict[int, RegisterHandle] = {}
        if problem.residual:
            self.inputs["r"] = k.tensor("R", shape, dtype)
            self.total = k.tensor("S", shape, dtype, role="output")
            self.sums = {group: self.rows[group].whole_row("sum") for group in groups}
        self.y = k.tensor("Y", shape, dtype, role="output")
        size = (WEFTS, blocks(problem) * BLOCK)
        self.pool = {
            (g, s): [k.pool(f"{name}_{g}_{s}", size, dtype, spread="rows")[0] for name in self.inputs] for g, s in slots
        }

    def begin_load(self, group: int) -> None:
        """The first pair loads the weights, for all."""
        if group == 0 and self.weights is not None:
            self.weights.load()

    def begin_work(self, group: int) -> None:
        """Wait for the weights, or load one's own."""
        rows = self.rows[group]
        if self.weights is not None:
            self.weights.wait(group)
        elif isinstance(rows, OwnRows):
            rows.load_all()

    def load(self, slot: Slot) -> None:
        """Load a row, and that of the residual."""
        for tile, tensor in zip(self.pool[slot.group, slot.stage], self.inputs.values(), strict=True):
            self.k.load(tile, tensor[slot.at("row"), 0])
            self.k.set_busy_bit(tile, "full")

    def work(self, slot: Slot) -> None:
        """Normalise a row."""
        rows, at, tiles = self.rows[slot.group], slot.at("row"), self.pool[slot.group, slot.stage]
        row = self._sum(slot) if self.sums else tiles[0]
        rows.square(row)
        rows.store(row, self.y, at)
        if not self.sums:
            self.k.set_busy_bit(row, "empty")

    def _sum(self, slot: Slot) -> RegisterHandle:
        """Add the residual block by block, write the sum, and give both back."""
        k, row, tiles = self.k, self.sums[slot.group], self.pool[slot.group, slot.stage]
        for col in self.rows[slot.group].firsts:
            block = row.columns(col, BLOCK)
            k.elementwise("add", block, *(tile.columns(col, BLOCK) for tile in tiles))
            k.store(self.total[slot.at("row"), col], block)
        for tile in tiles:
            k.set_busy_bit(tile, "empty")
        return row


def shares_weights(problem: NormProblem) -> bool:
    """Whether weights are whole blocks, which can lie side by side in four subpartitions."""
    return problem.hidden % BLOCK == 0


def needs(problem: NormProblem, place: Place) -> Needs:
    """Return the registers of a weft: a row, or two and a sum of one's own; weights, once in the pool or in each."""
    row = row_registers(problem)
    stages = ceil_div(blocks(problem), WEFTS) if place == "pool" else 0
    return Needs(
        unit=row * (1 + problem.residual),
        work=WORKING_REGISTERS + row * problem.residual + (row if place == "own" else 0),
        once=(stages + 2) * BLOCK_REGISTERS if stages else 0,
        least=1 if problem.residual else 2,
    )


def fiber_candidates(problem: NormProblem, machine: Machine, places: Sequence[Place]) -> list[NormStream]:
    """Return configurations worth trying. Raises UserError where a row does not fit."""
    units = ceil_div(problem.rows, WEFTS)
    allowed = [place for place in places if place != "pool" or shares_weights(problem)]
    if "pool" in allowed:  # better than loads in every case that was tried
        allowed.remove("loaded")
    found = [
        NormStream(groups=config.groups, stages=config.stages, weights=place)
        for place in allowed
        for config in candidates(needs(problem, place), units, machine)
    ]
    if not found:
        raise UserError(
            f"a row of {problem.hidden} elements takes {needs(problem, 'loaded').unit} registers of each weft in the "
            "pool, which no window holds beside the working wefts' own",
            hint="leave --mode out: today's kernel has a row in registers of its own",
        )
    return found


def build(problem: NormProblem, config: NormStream, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    check_item_count(f"rmsnorm cuts {problem.rows} rows", ceil_div(problem.rows, WEFTS))
    if config.weights == "pool" and not shares_weights(problem):
        raise UserError(
            f"weights in the pool are whole blocks of {BLOCK}; hidden is {problem.hidden}",
            hint="weights=own or weights=loaded",
        )
    check_config(config, needs(problem, config.weights))
    return rmsnorm_fiber.build(machine.architecture, problem, config, machine, params=params)


WEIGHTS = TileParameter(
    "weights", str, "where weights are: once in an SM, in each working weft, or loaded for each row",
    "pool, own, loaded",
)  # fmt: skip
APART = NativeKernel(candidates=partial(fiber_candidates, places=("own", "loaded")), build=build, tile=(*TILE, WEIGHTS))
"""For machines whose registers are shared inside a subpartition."""
FIBER = NativeKernel(
    candidates=partial(fiber_candidates, places=("pool", "own", "loaded")),
    build=build,
    tile=(*TILE, WEIGHTS),
    needs=("dynamic_parallelism", "fine_scheduling", "register_sharing"),
    across=True,
    instead=(APART,),
)
"""The FIBER-native kernel; the same for all architectures."""
