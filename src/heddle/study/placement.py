"""Operand placement of mma.sync in shared registers: the paper's rule, this project's, and a searched one.

Measured on one SM of a machine with FIBER features: cycles, and conflicts, the cycles in which the read-port arbiter
denies an instruction its ports (docs/explanation/placement.md has the tables).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from heddle import sim
from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.kernels.attention.forward import sm80_fiber_native
from heddle.kernels.attention.forward.sm80_fiber_config import fiber_items
from heddle.kernels.attention.forward.sm80_fiber_placed import attention_sm80_fiber_placed
from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.gemm.sm80_fiber import FiberGemm80
from heddle.kernels.gemm.sm80_fiber_placed import OWN_ROWS, PAPER, WEFTS, Placement, gemm_sm80_fiber_placed
from heddle.machine.spec import Machine
from heddle.passes import compile_program
from heddle.sim.result import Stall

MMA_SYNC_PACE = 7
"""Least cycles between instructions of wefts that do not multiply, as mma.syncs need their issue slots."""

__all__ = ["OWN_ROWS", "PAPER", "Measured", "Placement", "measure_attention", "measure_gemm", "search_gemm"]
MOST_QUARTERS = 2
"""Quarters of A that one subpartition takes: more would leave its loading weft alone with most of A."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One placement: cycles, busy share of the tensor cores, and cycles of denied ports for each mma.sync."""

    label: str
    cycles: int
    tensor_use: float
    conflicts: float


def measured(label: str, program: WarpProgram, machine: Machine) -> Measured:
    """Run a program of mode fiber on all of `machine`, warm L2."""
    result = sim.simulate(program, machine, mode="chip")
    products = sum(
        int(result.stalls_pc[pc, Stall.SELECTED]) for pc, row in enumerate(program.instructions) if row.op == "HMMA"
    )
    assert result.fiber is not None
    use = result.tensor_busy_cycles / result.cycles
    return Measured(label, result.cycles, use, result.fiber.port_denials / products)


def measure_gemm(problem: FiberGemm80, placement: Placement, machine: Machine) -> Measured:
    """Measure a GEMM whose operands lie where `placement` says."""
    tiles = gemm_sm80_fiber_placed.build("sm_80", problem, placement)
    return measured(placement.label(), compile_program(tiles, machine), machine)


def measure_attention(problem: AttentionProblem, homes: tuple[int, ...], machine: Machine) -> Measured:
    """Measure native attention with K and V in some subpartitions. Raises UserError where they do not fit."""
    config = replace(sm80_fiber_native.candidates(problem, machine)[0], weft_level=0, pace=MMA_SYNC_PACE)
    items = fiber_items(problem, config)
    clusters = min(len(items["row"]), machine.sms)
    tiles = attention_sm80_fiber_placed.build("sm_80", problem, config, items, clusters, homes)
    label = "K and V in " + " ".join(map(str, homes))
    return measured(label, compile_program(tiles, machine), machine)


def search_gemm(
    problem: FiberGemm80, machine: Machine, start: Placement = OWN_ROWS, note: Callable[[Measured], object] = print
) -> Placement:
    """Return the placement with the fewest cycles that changing one thing at a time finds; `note` sees each measured.

    Changed in turn are B with its stagger, and A, until neither helps any more; what does not fit is passed over.
    """
    best, known = start, dict[Placement, float]()

    def cycles(placement: Placement) -> float:
        if placement not in known:
            try:
                found = measure_gemm(problem, placement, machine)
            except UserError:
                known[placement] = math.inf
                return math.inf
            known[placement] = found.cycles
            note(found)
        return known[placement]

    while True:
        before = best
        for neighbours in (second_operands, first_operands):
            best = min([best, *neighbours(best)], key=cycles)
        if best == before:
            return best


def second_operands(placement: Placement) -> Iterator[Placement]:
    """Yield all homes of B: 4, 2 or 1 neighbouring subpartitions, staggered or not."""
    for parts in (WEFTS, WEFTS // 2, 1):
        for first in range(WEFTS - parts + 1):
            for staggered in (False, True) if parts > 1 else (False,):
                yield replace(placement, b=tuple(range(first, first + parts)), staggered=staggered)


def first_operands(placement: Placement) -> Iterator[Placement]:
    """Yield all homes of the quarters of A, ascending, with few quarters in one subpartition."""
    for homes in itertools.combinations_with_replacement(range(WEFTS), WEFTS):
        if max(map(homes.count, homes)) <= MOST_QUARTERS:
            yield replace(placement, a=homes)
