"""Decoding, second launch, of wefts without full and empty bits: each loads what it adds up into its own registers.

Parts are in L2, so that loads of some groups of wefts side by side cover its latency, and copies to shared memory would
only add one (they were tried). No weft waits for another one.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._alone import Alone, alone, alone_items, check_groups, groups_that_fit
from heddle.kernels._limits import check_item_count
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.decode.combine_sum import (
    COLUMNS,
    WORKING_REGISTERS,
    Sum,
    chunks,
    part_registers,
    unit_rows,
)
from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.lang import Builder, kernel
from heddle.machine.spec import Machine

MOST_GROUPS = 4
PARTS = (4, 8, 16)
"""Splits that a weft takes together."""
TILE = (
    TileParameter("groups", int, "groups of four wefts", f"1 to {MOST_GROUPS}, as registers hold"),
    TileParameter("parts", int, "splits that a weft loads together", "1 to num_splits, as registers hold"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeftConfig:
    """A FIBER-thread has `groups` groups of four wefts, each of which takes `parts` splits together."""

    groups: int
    parts: int

    def label(self) -> str:
        """Return a short name, as in `fiber g2 p4 loaded`."""
        return f"fiber g{self.groups} p{self.parts} loaded"


@kernel
def decode_combine_wefts(k: Builder, problem: DecodeProblem, config: WeftConfig, machine: Machine) -> None:
    """A unit is the rows that four wefts have side by side, with all splits."""
    k.flops = 2 * problem.rows * problem.head_dim * problem.num_splits
    units = {"row": range(0, problem.rows, unit_rows(problem))}
    items, threads = alone_items(units, config.groups, machine, outside={"row": problem.rows})
    k.work_items(items, clusters=threads)
    combine = _Combine(k, problem, config)
    alone(k, items, config.groups, registers(problem, config.parts), combine.rows)


class _Combine:
    """The code of the roles."""

    def __init__(self, k: Builder, problem: DecodeProblem, config: WeftConfig) -> None:
        self.k, self.problem, self.size = k, problem, config.parts
        rows, d, splits = problem.rows, problem.head_dim, problem.num_splits
        self.parts = k.tensor("O_partial", (rows, splits * d), "fp32")
        self.logs = k.tensor("LSE_partial", (rows, splits), "fp32")
        self.o = k.tensor("O", (rows, d), problem.dtype, role="output")
        self.sums = [Sum(k, problem, f"_{g}") for g in range(config.groups)]
        self.loaded = [
            [[total.tile(f"{name}{i}", cols) for i in range(self.size)] for name, cols in (("log", 1), ("part", d))]
            for total in self.sums
        ]

    def rows(self, unit: Alone) -> None:
        """Add up the splits of rows, and write O; rows that do not exist read zeros and write nothing."""
        k, total, row, d = self.k, self.sums[unit.group], unit.at("row"), self.problem.head_dim
        total.begin()
        for first, count in chunks(k, self.problem.num_splits, self.size):
            logs, parts = (tiles[:count] for tiles in self.loaded[unit.group])
            for tiles, source, cols in ((logs, self.logs, 1), (parts, self.parts, d)):
                for index, tile in enumerate(tiles):
                    k.load(tile, source[row, (first + index) * cols])
            total.add(logs, parts)
        total.divide()
        k.store(self.o[row, 0], total.total)


def registers(problem: DecodeProblem, parts: int) -> int:
    """Return the registers of a weft: parts and logarithms, O and its columns."""
    part = part_registers(problem)
    return parts * (part + 1) + part + COLUMNS + WORKING_REGISTERS


def _units(problem: DecodeProblem) -> int:
    return ceil_div(problem.rows, unit_rows(problem))


def _most_groups(problem: DecodeProblem, parts: int) -> int:
    return groups_that_fit(registers(problem, parts), MOST_GROUPS)


def weft_candidates(problem: DecodeProblem, machine: Machine) -> list[WeftConfig]:
    """Return configurations worth trying: no more groups than an SM has units for."""
    each = ceil_div(_units(problem), machine.sms)
    sizes = dict.fromkeys(min(size, problem.num_splits) for size in PARTS)
    return [WeftConfig(groups=min(each, _most_groups(problem, size)), parts=size) for size in sizes]


def build(problem: DecodeProblem, config: WeftConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    check_item_count(f"decode_combine cuts {problem.rows} rows", _units(problem))
    if not 1 <= config.parts <= problem.num_splits:
        raise UserError(f"parts must be 1 to {problem.num_splits}, the splits; got {config.parts}")
    check_groups(
        config.groups, registers(problem, config.parts), MOST_GROUPS, "use fewer parts", f" with {config.parts} parts"
    )
    return decode_combine_wefts.build(machine.architecture, problem, config, machine, params=params)


WEFTS_ALONE = NativeKernel(candidates=weft_candidates, build=build, tile=TILE, needs=("dynamic_parallelism",))
"""For machines without full and empty bits: no register is shared."""
