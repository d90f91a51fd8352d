"""Put the event log into the order in which its events take effect (docs/reference/engine.md, section 7)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import InternalError
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, WarpProgram
from heddle.sim.result import EventKind

# Units whose instructions change neither data nor the order between warps: the replay never looks at them.
_SILENT = frozenset(
    {Unit.FIXED, Unit.VARIABLE, Unit.SET_REGISTERS, Unit.SKIP, Unit.SPLIT, Unit.REJOIN, Unit.YIELD, Unit.WGMMA_ARRIVE}
)
# Units whose effects happen after the issue, when the log says so.
ASYNCHRONOUS_UNITS = frozenset(
    {Unit.GLOBAL, Unit.BULK_LOAD, Unit.BULK_STORE, Unit.BULK_PEER, Unit.WGMMA, Unit.TCGEN05_MMA, Unit.WEFT_MMA}
)
_ASYNCHRONOUS = (EventKind.COPY, EventKind.STORE, EventKind.TENSOR)
WARPS_PER_GROUP = 4


def interesting(program: WarpProgram) -> NDArray[np.bool_]:
    """Return for each pc whether the replay must look at its issue."""
    return np.array(
        [
            i.effect is not None
            or bool(i.advance)
            or i.op == "FENCE"
            or OPCODES[i.op].unit not in _SILENT
            or (program.mode == "fiber" and (bool(i.control.wait) or _takes_token(i)))
            for i in program.instructions
        ],
        np.bool_,
    )


def _takes_token(instruction: Instruction) -> bool:
    """Tell whether an instruction reads shared registers only to wait for them."""
    return instruction.dst is None and any(source.place is not None for source in instruction.src)


def ordered_events(log: NDArray[Any], program: WarpProgram) -> NDArray[Any]:
    """Return the records that matter, sorted: completions of a cycle, then phase changes, then issues in log order."""
    kind, pc = log["kind"], log["pc"]
    if log.size and int(pc.max()) >= len(program.instructions):
        raise InternalError("the event log names an instruction that the program does not have")
    at_issue = (kind == EventKind.ISSUE) & interesting(program)[np.maximum(pc, 0)]
    other = np.isin(kind, [*_ASYNCHRONOUS, EventKind.BARRIER])
    events = log[at_issue | other]
    time = np.where(events["kind"] == EventKind.ISSUE, events["begin"], events["end"])
    rank = np.select([events["kind"] == EventKind.ISSUE, events["kind"] == EventKind.BARRIER], [2, 1], 0)
    ordered: NDArray[Any] = events[np.lexsort((np.arange(events.size), rank, time))]
    return ordered


def completion_cycles(log: NDArray[Any]) -> dict[tuple[int, int, int], list[int]]:
    """Return when matrix results become visible, in order, for each (sm, slot, issuing warp)."""
    cycles: dict[tuple[int, int, int], list[int]] = {}
    for record in log[log["kind"] == EventKind.COMPLETE]:
        key = (int(record["sm"]), int(record["slot"]), int(record["warp"]))
        cycles.setdefault(key, []).append(int(record["end"]))
    return cycles
