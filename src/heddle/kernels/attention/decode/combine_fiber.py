"""Decoding, second launch, with FIBER: parts and logarithms arrive in shared registers while those before are added."""

from __future__ import annotations

from heddle.ir.tile import TileProgram
from heddle.kernels._limits import check_item_count
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._rounding import ceil_div
from heddle.kernels._streams import (
    TILE,
    Needs,
    Slot,
    StreamConfig,
    candidates,
    check_config,
    stream,
    unit_items,
    used_slots,
)
from heddle.kernels.attention.decode.combine_sum import (
    COLUMNS,
    MOST_PARTS,
    WORKING_REGISTERS,
    Sum,
    chunks,
    part_registers,
    row_lanes,
    unit_rows,
)
from heddle.kernels.attention.decode.combine_wefts import WEFTS_ALONE
from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.lang import Builder, RegisterHandle, kernel
from heddle.machine.spec import Machine


@kernel
def decode_combine_fiber(k: Builder, problem: DecodeProblem, config: StreamConfig, machine: Machine) -> None:
    """A unit is the rows that four wefts have side by side, with all splits, some of which are in the pool."""
    k.flops = 2 * problem.rows * problem.head_dim * problem.num_splits
    items, threads = unit_items({"row": range(0, problem.rows, unit_rows(problem))}, config, machine)
    k.work_items(items, clusters=threads)
    combine = _Combine(k, problem, used_slots(config, items))
    stream(k, config, items, needs(problem), combine.load, combine.work)


class _Combine:
    """The roles' code."""

    def __init__(self, k: Builder, problem: DecodeProblem, slots: list[tuple[int, int]]) -> None:
        self.k, self.problem = k, problem
        rows, d, splits = problem.rows, problem.head_dim, problem.num_splits
        self.parts = k.tensor("O_partial", (rows, splits * d), "fp32")
        self.logs = k.tensor("LSE_partial", (rows, splits), "fp32")
        self.o = k.tensor("O", (rows, d), problem.dtype, role="output")
        self.pool = {
            slot: [[self._pooled(f"{name}{i}_{slot[0]}_{slot[1]}", cols) for i in range(together(problem))]
                   for name, cols in (("log", 1), ("part", d))]
            for slot in slots
        }  # fmt: skip
        self.sums = {group: Sum(k, problem, f"_{group}") for group in sorted({group for group, _ in slots})}

    def _pooled(self, name: str, cols: int) -> RegisterHandle:
        shape, lanes = (unit_rows(self.problem), cols), row_lanes(self.problem)
        return self.k.pool(name, shape, "fp32", spread="rows", row_lanes=lanes)[0]

    def load(self, slot: Slot) -> None:
        """Load logarithms, then parts, split after split."""
        k, row = self.k, slot.at("row")
        logs, parts = self.pool[slot.group, slot.stage]
        for first, count in chunks(k, self.problem.num_splits, together(self.problem)):
            for tiles, source, cols in ((logs, self.logs, 1), (parts, self.parts, self.problem.head_dim)):
                for index, tile in enumerate(tiles[:count]):
                    k.load(tile, source[row, (first + index) * cols])
                    k.set_busy_bit(tile, "full")

    def work(self, slot: Slot) -> None:
        """Add up the splits as they come, and write O."""
        k, total = self.k, self.sums[slot.group]
        logs, parts = self.pool[slot.group, slot.stage]
        total.begin()
        for _, count in chunks(k, self.problem.num_splits, together(self.problem)):
            total.add(logs[:count], parts[:count], lambda tile: k.set_busy_bit(tile, "empty"))
        total.divide()
        k.store(self.o[slot.at("row"), 0], total.total)


def together(problem: DecodeProblem) -> int:
    """Return the splits of a unit that are in the pool at a time."""
    return min(MOST_PARTS, problem.num_splits)


def needs(problem: DecodeProblem) -> Needs:
    """Return the registers of a weft: parts and logarithms in the pool; O and columns of its own."""
    part = part_registers(problem)
    return Needs(unit=together(problem) * (part + 1), work=part + COLUMNS + WORKING_REGISTERS)


def fiber_candidates(problem: DecodeProblem, machine: Machine) -> list[StreamConfig]:
    """Return configurations worth trying."""
    return candidates(needs(problem), ceil_div(problem.rows, unit_rows(problem)), machine)


def build(problem: DecodeProblem, config: StreamConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    check_item_count(f"decode_combine cuts {problem.rows} rows", ceil_div(problem.rows, unit_rows(problem)))
    check_config(config, needs(problem))
    return decode_combine_fiber.build(machine.architecture, problem, config, machine, params=params)


FIBER = NativeKernel(candidates=fiber_candidates, build=build, tile=TILE, instead=(WEFTS_ALONE,))
"""The FIBER-native kernel; the same for all architectures."""
