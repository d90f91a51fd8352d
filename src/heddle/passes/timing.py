"""What the control passes need to know about an instruction: latencies and who reads or writes late."""

from __future__ import annotations

from math import floor
from typing import NamedTuple

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction
from heddle.machine.spec import Machine
from heddle.passes.draft import PSEUDO, Draft, Operand

# operands of these are read some time after issue, so that overwriting them needs a read counter
LATE_READERS = frozenset(
    {
        Unit.SHARED,
        Unit.GLOBAL,
        Unit.BULK_LOAD,
        Unit.BULK_STORE,
        Unit.BULK_PEER,
        Unit.TCGEN05_MMA,
        Unit.TMEM_STORE,
        Unit.WEFT_MMA,
    }
)
# results come at an unknown time (that of a store to tensor memory is its end)
LATE_WRITERS = frozenset({Unit.SHARED, Unit.GLOBAL, Unit.TMEM_LOAD, Unit.TMEM_STORE, Unit.WEFT_MMA})
KNOWN_WRITERS = frozenset({Unit.VARIABLE})  # known latency, but long: a write counter where the distance is too short


class Timing(NamedTuple):
    """`latency` of the result (0: unknown or none), `gap` to the next issue on the same pipe, both in cycles."""

    unit: Unit
    pipe: str
    gap: int
    latency: int


def timing(machine: Machine, row: Instruction) -> Timing:
    """Timing of one instruction on a machine."""
    unit = OPCODES[row.op].unit
    op = machine.op_timing(row.op, form=row.form, dtype=row.dtype, shape=row.shape)
    known = unit not in LATE_WRITERS and unit is not Unit.WGMMA
    return Timing(unit, op.pipe, floor(op.initiation_cycles), op.latency_cycles if known else 0)


def places(operands: tuple[Operand, ...], registers: dict[int, int]) -> list[tuple[str, int]]:
    """(file, register) of each element."""
    if not operands:
        return []
    return [(o.value.file, registers[o.value.id] + i) for o in operands for i in range(o.offset, o.offset + o.count)]


def in_order(first: Timing | None, second: Timing) -> bool:
    """Whether the unit itself orders two instructions of one warp: a weft's matrix instructions run one by one."""
    return first is not None and first.unit is second.unit is Unit.WEFT_MMA


def is_real(draft: Draft) -> bool:
    """Whether a draft becomes an instruction."""
    return draft.op not in PSEUDO
