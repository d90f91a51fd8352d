"""Matrix products of mma.sync that stand alone: fragments are loaded a few HMMAs before they are needed.

Next to large accumulators there is no room for two sets of fragments of whole k-steps. A compiler then moves each
ldmatrix down to its use; only the latency of shared memory lies between. Loops that multiply stage by stage keep two
sets, see `sm_80` and `pipeline_fragments`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from heddle.ir.tile import Mma
from heddle.passes.draft import Operand
from heddle.passes.layout_to_warps import WarpLayout
from heddle.passes.select.sm_80 import MMA_ROWS, FragmentLoad, Product, Step, check_product, emit_load, k_steps
from heddle.passes.select.writer import RoleWriter

COLUMNS = 2  # blocks of 8 columns that one LDSM.x4 brings
HMMAS_AHEAD = 8  # between a load and its use: 64 cycles on A100, where ldmatrix takes 33 when nothing is in its way


@dataclass(frozen=True, slots=True)
class Portion:
    """HMMAs of one k-step whose B comes with one load: `cols`, and the loads that they are the first to need."""

    index: int
    step: Step
    cols: range
    loads: tuple[FragmentLoad, ...]


def lower_mma(writer: RoleWriter, op: Mma) -> None:
    """One portion of HMMAs after the other, each behind the loads of a later portion."""
    layout, count, k = check_product(writer, op)
    for key in [key for key in writer.fragments if key[0] == op.acc]:
        del writer.fragments[key]
    product = Product(writer, op, layout, k)
    portions = list(_portions(k_steps(writer, op, sets=count), layout))
    ahead = max(1, HMMAS_AHEAD * MMA_ROWS // (COLUMNS * layout.rows))
    addresses: dict[int, Operand] = {}
    for portion in portions[:ahead]:
        _load(writer, portion, addresses)
    for number, portion in enumerate(portions):
        if number + ahead < len(portions):
            _load(writer, portions[number + ahead], addresses)
        for col in portion.cols:
            for row in product.rows(col):
                product.emit(portion.step, portion.index, row, col)
        if portion.cols.stop == len(portion.step.b):
            product.attach(portion.index)


def _portions(steps: list[Step], layout: WarpLayout) -> Iterator[Portion]:
    for index, step in enumerate(steps):
        for number, load in enumerate(step.b_loads):
            first = step.a_loads if number == 0 else ()
            cols = range(number * COLUMNS, min((number + 1) * COLUMNS, len(step.b)))
            yield Portion(index, step, cols, (*first, load))


def _load(writer: RoleWriter, portion: Portion, addresses: dict[int, Operand]) -> None:
    for load in portion.loads:
        emit_load(writer, load, addresses)
