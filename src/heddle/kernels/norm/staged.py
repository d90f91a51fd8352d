"""RMS normalisation of wefts without full and empty bits: rows come through shared memory, units ahead.

A weft has a row in registers of its own once its copy is there, so that the next one can be copied to its place.
Weights are copied once, to shared memory of the SM, from where every row has them block by block.
"""

from __future__ import annotations

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._limits import check_item_count
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._rounding import ceil_div
from heddle.kernels._staged import (
    LANE_BYTES,
    TILE,
    Staged,
    StagedConfig,
    StagedNeeds,
    candidates,
    check_config,
    copy_own,
    staged,
    staged_items,
)
from heddle.kernels._streams import WEFTS
from heddle.kernels.norm.rmsnorm import BLOCK, WORKING_REGISTERS, Rows, blocks, row_registers
from heddle.kernels.norm.shape import NormProblem
from heddle.lang import Builder, GlobalHandle, SharedHandle, kernel
from heddle.machine.spec import Machine

MEETING = 1
"""Named barrier at which all wefts meet once the weights are there."""


@kernel
def rmsnorm_staged(k: Builder, problem: NormProblem, config: StagedConfig, machine: Machine) -> None:
    """A unit is a row of each of four wefts."""
    k.flops = problem.flops
    items, threads = staged_items({"row": range(0, problem.rows, WEFTS)}, {"row": problem.rows}, config, machine)
    k.work_items(items, clusters=threads)
    norm = _Norm(k, problem, config)
    staged(k, config, needs(problem), norm.copy, norm.work, norm.begin)


class _SharedRows(Rows):
    """Rows whose weights are in shared memory."""

    def __init__(self, k: Builder, problem: NormProblem, source: GlobalHandle, group: int, held: SharedHandle) -> None:
        self.held = held
        super().__init__(k, problem, WEFTS, source, f"_{group}")

    def load_weights(self, index: int) -> None:
        """Load a block of weights, if there is one."""
        if index < len(self.firsts):
            self.k.load(self.weights[index % 2], self.held[:].part(col=self.firsts[index], cols=BLOCK))


class _Norm:
    """The roles' code."""

    def __init__(self, k: Builder, problem: NormProblem, config: StagedConfig) -> None:
        self.k, self.problem, self.groups = k, problem, range(config.groups)
        shape, dtype = (problem.rows, problem.hidden), problem.dtype
        self.inputs = {"x": k.tensor("X", shape, dtype)}
        if problem.residual:
            self.inputs["r"] = k.tensor("R", shape, dtype)
            self.total = k.tensor("S", shape, dtype, role="output")
        self.y = k.tensor("Y", shape, dtype, role="output")
        self.source = k.tensor("W", (1, problem.hidden), dtype)
        self.held = k.shared("weights", (1, ceil_div(blocks(problem), WEFTS) * WEFTS * BLOCK), dtype)
        size, stages = (WEFTS, blocks(problem) * BLOCK), config.stages
        self.shared = {g: [k.shared(f"{n}_{g}", size, dtype, stages=stages) for n in self.inputs] for g in self.groups}
        self.rows = {g: _SharedRows(k, problem, self.source, g, self.held) for g in self.groups}
        self.row = {g: self.rows[g].whole_row("row") for g in self.groups}
        self.parts = {g: self.rows[g].parts() if problem.residual else [] for g in self.groups}

    def begin(self, group: int) -> None:
        """The first group copies the weights; all wait for all of it."""
        k = self.k
        if group == 0:
            for first in range(0, self.held.tile.cols, WEFTS * BLOCK):
                box = self.held[:].part(col=first, cols=WEFTS * BLOCK)
                k.cp_async(box, self.source[0, first], bytes_per_lane=LANE_BYTES)
            k.cp_async_commit()
            k.cp_async_wait(pending=0)
        k.sync(MEETING, warps=WEFTS * len(self.groups))

    def copy(self, unit: Staged) -> None:
        """Copy a row, and that of the residual."""
        for tile, tensor in zip(self.shared[unit.group], self.inputs.values(), strict=True):
            copy_own(self.k, tile, unit, tensor, unit.at("row"), 0, BLOCK)

    def work(self, unit: Staged) -> None:
        """Normalise a row."""
        rows, row, at = self.rows[unit.group], self.row[unit.group], unit.at("row")
        x, *others = (tile[unit.at_stage] for tile in self.shared[unit.group])
        self.k.load(row, x)
        for other in others:
            for index, col in enumerate(rows.firsts):
                part, block = self.parts[unit.group][index % 2], row.columns(col, BLOCK)
                self.k.load(part, other.part(col=col, cols=BLOCK))
                self.k.elementwise("add", block, block, part)
                self.k.store(self.total[at, col], block)
        rows.square(row)
        rows.store(row, self.y, at)


def needs(problem: NormProblem) -> StagedNeeds:
    """Return what a unit takes."""
    block = BLOCK * problem.element_bytes
    return StagedNeeds(
        unit_bytes=WEFTS * blocks(problem) * block * (1 + problem.residual),
        work=WORKING_REGISTERS + row_registers(problem),
        once_bytes=ceil_div(blocks(problem), WEFTS) * WEFTS * block,
    )


def staged_candidates(problem: NormProblem, machine: Machine) -> list[StagedConfig]:
    """Return configurations worth trying. Raises UserError where a row does not fit."""
    found = candidates(needs(problem), ceil_div(problem.rows, WEFTS), machine)
    if not found:
        raise UserError(
            f"a row of {problem.hidden} elements takes {needs(problem).work} registers of a weft and "
            f"{needs(problem).unit_bytes:,} bytes of shared memory a unit, of which there are two; they do not fit",
            hint="leave --mode out: today's kernel has a row in registers of its own alone",
        )
    return found


def build(problem: NormProblem, config: StagedConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError if the configuration does not fit."""
    check_item_count(f"rmsnorm cuts {problem.rows} rows", ceil_div(problem.rows, WEFTS))
    check_config(config, needs(problem), machine)
    return rmsnorm_staged.build(machine.architecture, problem, config, machine, params=params)


STAGED = NativeKernel(candidates=staged_candidates, build=build, tile=TILE, needs=("dynamic_parallelism",))
"""For machines without full and empty bits: no register is shared."""
